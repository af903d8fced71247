"""A pre-training that starts from weights: its start, its frozen warm-up, its end, its guard."""

import os
import shutil
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attmask.adaptation.complete import complete, load_start
from attmask.adaptation.start import keep_start, kept_start
from attmask.cli import main
from attmask.commands.outcome import tell
from attmask.config import PretrainConfig
from attmask.data.sources import open_images
from attmask.evaluation.loading import load_model
from attmask.evaluation.online import OnlineEvaluation
from attmask.events import read_events
from attmask.heartbeat import Heartbeat
from attmask.metric import Metric, values_by_key
from attmask.models.backbone import Backbone
from attmask.models.interop import import_backbone
from attmask.monitor import read_metrics
from attmask.presence import hold
from attmask.recipe import load_recipe
from attmask.run_status import read_status
from attmask.train import Trainer
from tests.adaptation.foreign import write_weights
from tests.runs import SHORT, last_checkpoint, same_tensors

TINY = load_recipe("tiny")
LORA = ("adapt.lora_rank=2",)
FROZEN = ("schedule.freeze_backbone_epochs=1", "adapt.layer_decay=0.5")
Autocast = Callable[[], AbstractContextManager[object]]


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("weights") / "vit.safetensors")


def config_of(weights: Path, run: Path, *overrides: str) -> PretrainConfig:
    return complete(TINY, run, [*SHORT, f"init={weights}", *overrides])


def trainer(
    scenes: Path, config: PretrainConfig, run: Path, heartbeat: Heartbeat | None = None
) -> Trainer:
    start = load_start(config, run)
    assert start is not None
    made = Trainer(config, open_images(scenes).train, run, heartbeat=heartbeat, start=start)
    if made.step == 0:
        keep_start(run, start)
    return made


def pixels() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def interrupt_after(made: Trainer, step: int) -> None:
    """Send Ctrl-C in the middle of a step."""
    count = [0]

    def count_steps(_: Tensor) -> None:
        if count[0] == step:
            os.kill(os.getpid(), signal.SIGINT)
        count[0] += 1

    made.distiller.student.backbone.mask_token.register_post_accumulate_grad_hook(count_steps)


@pytest.mark.parametrize("overrides", [(), LORA])
def test_tokens_before_the_first_step_are_those_of_the_file_at_any_size(
    scenes: Path, tmp_path: Path, weights: Path, overrides: tuple[str, ...]
) -> None:
    made = trainer(scenes, config_of(weights, tmp_path, *overrides), tmp_path)
    wanted = import_backbone(weights)
    for network in (made.distiller.student.backbone, made.distiller.teacher.backbone):
        for images in (pixels(), pixels()[..., :16, :16]):
            ours, theirs = network(images), wanted(images)
            assert torch.equal(ours.cls, theirs.cls)
            assert torch.equal(ours.patches, theirs.patches)
            assert torch.equal(ours.attention, theirs.attention)


def test_the_first_evaluation_is_that_of_the_file(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    run = tmp_path / "run"
    settings = (*SHORT, f"init={weights}", "schedule.epochs=1", "train.precision=fp32")
    assert main(["pretrain", str(scenes), "--recipe", "tiny", "--out", str(run), *settings]) == 0
    config = config_of(weights, tmp_path / "other")
    measure = OnlineEvaluation(
        open_images(scenes), config.data, config.monitor, image_size=config.views.global_size
    )
    wanted = values_by_key(measure(import_backbone(weights), nullcontext))
    first = next(record for record in read_metrics(run) if record["epoch"] == 0)
    assert {key: first[key] for key in wanted} == pytest.approx(wanted)
    assert "knn.top1" in wanted


@pytest.mark.parametrize("overrides", [FROZEN, (*FROZEN, *LORA)])
def test_a_frozen_backbone_does_not_change_while_the_heads_learn(
    scenes: Path, tmp_path: Path, weights: Path, overrides: tuple[str, ...]
) -> None:
    made = trainer(scenes, config_of(weights, tmp_path, *overrides), tmp_path)
    interrupt_after(made, made.schedules.steps_per_epoch - 1)
    head = made.distiller.student.head.mlp.state_dict()
    before = {name: tensor.clone() for name, tensor in head.items()}
    made.train()
    wanted = import_backbone(weights)
    for network in (made.distiller.student, made.distiller.teacher):
        assert torch.equal(network.backbone(pixels()).cls, wanted(pixels()).cls)
    after = made.distiller.student.head.mlp.state_dict()
    assert not any(torch.equal(before[name], after[name]) for name in before)
    again = trainer(scenes, made.config, tmp_path)
    again.train()
    teacher = again.distiller.teacher.backbone
    assert not torch.equal(teacher(pixels()).cls, wanted(pixels()).cls), "it learns afterwards"


def test_only_the_updates_of_low_rank_are_trained(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    made = trainer(scenes, config_of(weights, tmp_path, *LORA), tmp_path)
    before = {k: t.clone() for k, t in made.distiller.student.backbone.state_dict().items()}
    made.train()
    after = made.distiller.student.backbone.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {
        name for name in before if name.endswith((".0.a", ".0.b")) or name == "mask_token"
    }


def test_a_loaded_run_computes_what_the_network_in_training_computes(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    made = trainer(scenes, config_of(weights, tmp_path, *LORA, "schedule.lr=0.1"), tmp_path)
    made.train()
    for name in ("teacher", "student"):
        loaded = load_model(f"{tmp_path}@{name}").backbone(pixels())
        network = made.distiller.get_submodule(f"{name}.backbone")
        torch.testing.assert_close(loaded.cls, network(pixels()).cls)
    untrained = load_model(f"{tmp_path}@untrained").backbone(pixels())
    assert torch.equal(untrained.cls, import_backbone(weights)(pixels()).cls)


@pytest.mark.parametrize("overrides", [FROZEN, LORA, ("adapt.blocks=1",)])
def test_an_interrupted_run_goes_on_to_the_same_bits_when_the_weights_are_gone(
    scenes: Path, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    file = write_weights(tmp_path / "vit.safetensors")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    config = config_of(file, whole, *overrides)
    assert trainer(scenes, config, whole).train().finished
    made = trainer(scenes, config, cut)
    interrupt_after(made, 7)
    assert not made.train().finished
    file.unlink()
    again = trainer(scenes, config_of(file, cut, *overrides), cut)
    assert again.step == 8
    assert again.train().finished
    assert same_tensors(last_checkpoint(cut), last_checkpoint(whole))


def test_a_run_that_starts_again_keeps_a_copy_of_the_weights_it_starts_from_now(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    run, other = tmp_path / "run", write_weights(tmp_path / "other.safetensors", seed=8)
    trainer(scenes, config_of(weights, run), run)
    trainer(scenes, config_of(other, run), run)
    kept = kept_start(run)
    assert kept is not None
    assert kept.init == str(other)
    assert torch.equal(kept.build(None)(pixels()).cls, import_backbone(other)(pixels()).cls)


# The guard


@dataclass
class Loss:
    """An evaluation by which features become the worse the further they are from some weights."""

    weights: Path
    sign: float = -1.0
    seen: list[float] = field(default_factory=list)

    def __call__(
        self, backbone: Backbone, autocast: Autocast, stopped: Callable[[], bool]
    ) -> tuple[Metric, ...]:
        with torch.no_grad():
            away = (backbone(pixels()).cls - import_backbone(self.weights)(pixels()).cls).norm()
        self.seen.append(50 + self.sign * 1000 * float(away))
        return (Metric("knn.top1", self.seen[-1], "%", True),)


GUARDED = ("schedule.epochs=5", "guard.patience=2", "schedule.momentum=0.5")


def test_the_guard_ends_a_run_that_is_ruined_and_keeps_the_best(
    scenes: Path, tmp_path: Path, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    config = config_of(weights, run, *GUARDED)
    with hold(run) as heartbeat:
        outcome = trainer(scenes, config, run, heartbeat).train(Loss(weights))
    assert outcome.finished
    assert (outcome.steps, outcome.total_steps) == (12, 30)
    assert tell(outcome) == 0
    said = capsys.readouterr().out
    assert "done, 12 of 30 steps" in said
    assert "the guard has ended the training, 2 evaluations in a row" in said
    assert "the starting weights (k-NN 50.00 %), is kept" in said
    best = load_model(run).backbone
    assert torch.equal(best(pixels()).cls, import_backbone(weights)(pixels()).cls)
    last = load_model(f"{run}@teacher").backbone
    assert not torch.equal(last(pixels()).cls, best(pixels()).cls)
    status = read_status(run)
    assert status.state == "finished"
    assert not status.is_well
    assert "worse than those that training started from" in status.findings[0]
    kinds = [event.kind for event in read_events(run)]
    assert kinds == ["start", "finding", "finding", "finish"]
    assert "the guard has ended the training" in read_events(run)[-1].text


def test_a_run_that_the_guard_has_ended_is_not_trained_again_unless_asked(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    config = config_of(weights, tmp_path, *GUARDED)
    trainer(scenes, config, tmp_path).train(Loss(weights))
    again = trainer(scenes, config, tmp_path)
    assert again.finished
    assert again.train(Loss(weights)).was_finished
    asked = config_of(weights, tmp_path, *GUARDED, "guard.patience=null")
    assert trainer(scenes, asked, tmp_path).train(Loss(weights)).steps == 30


def test_the_guard_of_a_resumed_run_decides_as_if_it_had_never_stopped(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    config = config_of(weights, tmp_path, *GUARDED)
    made = trainer(scenes, config, tmp_path)
    interrupt_after(made, 8)
    assert not made.train(Loss(weights)).finished
    outcome = trainer(scenes, config, tmp_path).train(Loss(weights))
    assert (outcome.steps, outcome.ended_early) == (12, True)


def test_where_the_best_network_is_lost_the_starting_weights_take_its_place(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    config = config_of(weights, tmp_path, *GUARDED)
    made = trainer(scenes, config, tmp_path)
    interrupt_after(made, 8)
    assert not made.train(Loss(weights)).finished
    shutil.rmtree(tmp_path / "best")
    outcome = trainer(scenes, config, tmp_path).train(Loss(weights))
    assert "the starting weights (k-NN 50.00 %), is kept" in outcome.said
    best = load_model(tmp_path)
    assert best.origin["step"] == 0
    assert torch.equal(best.backbone(pixels()).cls, import_backbone(weights)(pixels()).cls)


def test_a_run_that_learns_goes_to_its_end_and_its_best_is_merged(
    scenes: Path, tmp_path: Path, weights: Path
) -> None:
    config = config_of(weights, tmp_path, *GUARDED, *LORA)
    made = trainer(scenes, config, tmp_path)
    outcome = made.train(Loss(weights, sign=1.0))
    assert (outcome.steps, outcome.ended_early) == (30, False)
    assert "at the start" in outcome.said
    best = load_model(f"{tmp_path}@best")
    torch.testing.assert_close(best.backbone(pixels()).cls, made.teacher(pixels()).cls)
    assert best.origin["weights"] == "best"
