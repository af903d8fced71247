"""Timing a config: real steps in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

from attmask.audit.audit import Timing
from attmask.audit.memory import peak_bytes
from attmask.audit.timing import measure, time_steps
from attmask.data.sources import open_images
from attmask.data.synthetic import write_folder
from attmask.data.views import Views
from attmask.errors import UserError
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import StepSchedule
from attmask.step import StepReport
from attmask.train import Trainer
from attmask.update import Update
from tests.runs import environment

TINY = override(load_recipe("tiny"), ["train.workers=1", "train.threads=1", "schedule.epochs=7"])


@pytest.fixture(scope="module")
def timing(scenes: Path) -> Timing:
    return time_steps(TINY, open_images(scenes))


def test_an_epoch_and_a_run_follow_from_the_speed(timing: Timing) -> None:
    assert (timing.batch_size, timing.workers, timing.device) == (16, 1, timing.device)
    assert timing.steps_per_epoch == 3
    slowest = min(timing.loader_images_per_second, timing.network_images_per_second)
    assert 0 < timing.images_per_second <= slowest * 1.000001
    assert timing.epoch_seconds == pytest.approx(3 * 16 / timing.images_per_second)
    assert timing.run_seconds == pytest.approx(7 * timing.epoch_seconds)
    is_data = timing.loader_images_per_second < timing.network_images_per_second
    assert timing.bottleneck == ("data" if is_data else "network")


def test_it_says_what_was_measured_and_how_much_memory_it_took(timing: Timing) -> None:
    assert timing.steps_timed >= 1
    assert 0 < timing.step_seconds_min <= timing.step_seconds_max
    assert timing.batches_timed >= 1
    assert timing.process_bytes is None or 50e6 < timing.process_bytes < 20e9
    assert timing.workers_bytes is None or timing.workers_bytes > 0


def test_what_a_run_would_refuse_is_refused_in_the_same_line(scenes: Path) -> None:
    with pytest.raises(UserError, match="48 images are fewer than one batch of 64"):
        time_steps(override(TINY, ["train.batch_size=64"]), open_images(scenes))


class Watched(Trainer):
    """A trainer that notes which share of the patches each step hides."""

    def learn(
        self, views: Views, now: StepSchedule, *, observe: bool = False
    ) -> tuple[StepReport, Update]:
        report, update = super().learn(views, now, observe=observe)
        self.hidden = [*getattr(self, "hidden", []), report.diagnostics[0].hidden]
        return report, update


def test_the_peak_includes_a_step_with_the_largest_masks(scenes: Path, tmp_path: Path) -> None:
    masks = ["masking.ratio=[0.1,0.75]", "masking.probability=1", "train.workers=0"]
    trainer = Watched(override(TINY, masks), open_images(scenes).train, tmp_path / "run")
    timing = measure(trainer)
    assert max(trainer.hidden) == 0.75
    assert len(trainer.hidden) == 7
    assert timing.steps_timed == 5  # neither the first nor the one of the largest masks
    assert trainer.distiller.masker.ratio == (0.1, 0.75)


RUN = """
import sys
from attmask.api import pretrain
from attmask.audit.memory import peak_bytes

pretrain(sys.argv[1], recipe="cpu", out=sys.argv[2], overrides=sys.argv[3:])
print("peak", peak_bytes())
"""


@pytest.mark.slow
@pytest.mark.skipif(peak_bytes() is None, reason="the system does not say what was held")
def test_a_run_takes_the_memory_that_was_forecast(tmp_path: Path) -> None:
    write_folder(tmp_path / "data", train=2000, val=500, size=64, seed=0)
    settings = ["schedule.epochs=3", "monitor.knn_every_epochs=1", "train.precision=fp32"]
    config = override(load_recipe("cpu"), settings)
    forecast = time_steps(config, open_images(tmp_path / "data")).process_bytes
    assert forecast is not None
    said = subprocess.run(
        [sys.executable, "-c", RUN, tmp_path / "data", tmp_path / "run", *settings],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    taken = int(said.stdout.splitlines()[-1].removeprefix("peak "))
    assert forecast == pytest.approx(taken, rel=0.15)
