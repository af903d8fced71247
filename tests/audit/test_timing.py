"""Timing a config: real steps in a process of its own."""

from pathlib import Path

import pytest

from attmask.audit.audit import Timing
from attmask.audit.timing import measure, time_steps
from attmask.config import override
from attmask.data.sources import open_images
from attmask.data.views import Views
from attmask.errors import UserError
from attmask.recipe import load_recipe
from attmask.schedules import StepSchedule
from attmask.step import StepReport
from attmask.train import Trainer

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

    def learn(self, views: Views, now: StepSchedule) -> StepReport:
        report = super().learn(views, now)
        self.hidden = [*getattr(self, "hidden", []), report.diagnostics[0].hidden]
        return report


def test_the_peak_includes_a_step_with_the_largest_masks(scenes: Path, tmp_path: Path) -> None:
    masks = ["masking.ratio=[0.1,0.75]", "masking.probability=1", "train.workers=0"]
    trainer = Watched(override(TINY, masks), open_images(scenes).train, tmp_path / "run")
    timing = measure(trainer)
    assert max(trainer.hidden) == 0.75
    assert len(trainer.hidden) == 7
    assert timing.steps_timed == 5  # neither the first nor the one of the largest masks
    assert trainer.distiller.masker.ratio == (0.1, 0.75)
