"""The loop: the teacher is measured, and a run that was stopped goes on as if it had not been."""

import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from attmask import checkpoint
from attmask.data.batch import Batch
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.interrupt import StopRequestedError
from attmask.loop import Outcome
from attmask.metric import Metric
from attmask.models.backbone import Backbone
from attmask.monitor import Pace, read_metrics
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.train import Trainer
from tests.runs import SHORT, last_checkpoint, same_tensors

TINY = override(load_recipe("tiny"), SHORT)
Autocast = Callable[[], AbstractContextManager[object]]


def trainer(scenes: Path, run: Path, *overrides: str) -> Trainer:
    return Trainer(override(TINY, overrides), open_images(scenes).train, run)


@dataclass
class Watch:
    """An evaluation that keeps what it is given, and may be interrupted."""

    interrupt_at: int | None = None
    seen: list[Backbone] = field(default_factory=list)

    def __call__(
        self, backbone: Backbone, autocast: Autocast, stopped: Callable[[], bool]
    ) -> tuple[Metric, ...]:
        if len(self.seen) == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)
        self.seen.append(backbone)
        return (Metric("watch.mask_token", backbone.mask_token.detach().sum().item(), "", None),)


class Batches(Watch):
    """An evaluation of five batches, which stops between two of them when told to."""

    def __call__(
        self, backbone: Backbone, autocast: Autocast, stopped: Callable[[], bool]
    ) -> tuple[Metric, ...]:
        for batch in range(5):
            if batch == 2 and len(self.seen) == self.interrupt_at:
                os.kill(os.getpid(), signal.SIGTERM)
            if stopped():
                raise StopRequestedError
        return super().__call__(backbone, autocast, stopped)


def records(run: Path) -> list[dict[str, float]]:
    """What was logged, without what depends on the machine."""
    return [
        {k: v for k, v in record.items() if k != "time" and not k.startswith("speed.")}
        for record in read_metrics(run)
    ]


def losses(run: Path) -> list[float]:
    """The loss of every step."""
    return [record["loss.total"] for record in records(run) if "loss.total" in record]


def interrupt_after(made: Trainer, step: int) -> None:
    """Send Ctrl-C in the middle of a step."""
    count = [0]

    def count_steps(_: Tensor) -> None:
        if count[0] == step:
            os.kill(os.getpid(), signal.SIGINT)
        count[0] += 1

    made.distiller.student.backbone.mask_token.register_post_accumulate_grad_hook(count_steps)


def test_evaluations_read_the_teachers_backbone_before_training_and_after_each_epoch(
    scenes: Path, tmp_path: Path
) -> None:
    made, watch = trainer(scenes, tmp_path / "run"), Watch()
    assert made.train(watch) == Outcome(tmp_path / "run", 12, 12)
    assert watch.seen == [made.distiller.teacher.backbone] * 3
    evaluated = [r for r in records(tmp_path / "run") if "watch.mask_token" in r]
    assert [(r["step"], r["epoch"]) for r in evaluated] == [(0, 0), (5, 1), (11, 2)]
    assert len({r["watch.mask_token"] for r in evaluated}) == 3, "it has changed in between"


@pytest.mark.parametrize(("every", "epochs"), [(0, []), (2, [0, 2, 3]), (5, [0, 3])])
def test_epochs_between_evaluations_are_left_out_but_the_last_is_measured(
    scenes: Path, tmp_path: Path, every: int, epochs: list[int]
) -> None:
    made = trainer(
        scenes,
        tmp_path,
        f"monitor.knn_every_epochs={every}",
        "schedule.epochs=3",
        "train.batch_size=48",
    )
    made.train(Watch())
    assert [r["epoch"] for r in records(tmp_path) if "watch.mask_token" in r] == epochs


@pytest.fixture(scope="module")
def undisturbed(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert trainer(scenes, run).train(Watch()).finished
    return run


@pytest.mark.parametrize("after", [0, 3, 5, 6])
def test_a_run_interrupted_after_any_step_goes_on_to_the_same_end(
    scenes: Path, tmp_path: Path, undisturbed: Path, after: int
) -> None:
    made = trainer(scenes, tmp_path)
    interrupt_after(made, after)
    assert made.train(Watch()) == Outcome(tmp_path, after + 1, 12)
    assert last_checkpoint(tmp_path).step == after + 1
    again = trainer(scenes, tmp_path)
    assert again.step == after + 1
    assert again.train(Watch()).finished
    assert same_tensors(last_checkpoint(tmp_path), last_checkpoint(undisturbed))
    assert records(tmp_path) == records(undisturbed)


@pytest.mark.parametrize("evaluation", [0, 1])
def test_a_run_interrupted_while_it_evaluates_keeps_the_numbers_and_asks_no_more(
    scenes: Path, tmp_path: Path, undisturbed: Path, evaluation: int
) -> None:
    outcome = trainer(scenes, tmp_path).train(Watch(interrupt_at=evaluation))
    assert outcome == Outcome(tmp_path, 6 * evaluation, 12)
    assert trainer(scenes, tmp_path).train(Watch()).finished
    assert same_tensors(last_checkpoint(tmp_path), last_checkpoint(undisturbed))
    assert records(tmp_path) == records(undisturbed)


OLD_STEP = """{"step": %d, "epoch": 0.0, "loss/total": 5.25, "loss/cls": 3.0, "loss/patch": 2.25, \
"health/hidden": 0.125, "schedule/lr": 0.0005, "speed/waiting_share": 0.25, "data/unreadable": 0.0}
"""
OLD_EVALUATION = """{"step": 5, "epoch": 1.0, "knn/top1": 31.5, "object/attention": 0.375, \
"quality/rank": 11.5}
"""


def test_a_run_of_an_earlier_version_resumes_with_its_log_in_todays_keys(
    scenes: Path, tmp_path: Path
) -> None:
    trainer(scenes, tmp_path).train(Watch(interrupt_at=1))
    old = OLD_STEP % 4 + OLD_STEP % 5 + OLD_EVALUATION
    (tmp_path / "metrics.jsonl").write_text(old)
    again, watch = trainer(scenes, tmp_path), Watch()
    assert not again.evaluation_missing(), "it is in the log under its old keys"
    assert again.train(watch).finished
    assert len(watch.seen) == 1, "only the evaluation after the last epoch was due"
    first, _, evaluation, *_ = read_metrics(tmp_path)
    assert (first["loss.total"], first["health.hidden"], first["speed.waiting"]) == (5.25, 12.5, 25)
    assert evaluation == {
        "step": 5,
        "epoch": 1,
        "knn.top1": 31.5,
        "objects.attention": 37.5,
        "label_free.rank": 11.5,
    }
    assert "/" not in (tmp_path / "metrics.jsonl").read_text(), "the file is rewritten on resuming"


@pytest.mark.parametrize("evaluation", [0, 1, 2])
def test_an_evaluation_stops_between_batches_and_the_resumed_run_repeats_it(
    scenes: Path, tmp_path: Path, undisturbed: Path, evaluation: int
) -> None:
    outcome = trainer(scenes, tmp_path).train(Batches(interrupt_at=evaluation))
    assert outcome == Outcome(tmp_path, 6 * evaluation, 12, evaluated=False)
    assert not outcome.finished
    measured = [r["epoch"] for r in records(tmp_path) if "watch.mask_token" in r]
    assert measured == list(range(evaluation)), "the one that was cut is not in the log"
    again = trainer(scenes, tmp_path)
    assert again.evaluation_missing()
    assert again.train(Watch()).finished
    assert same_tensors(last_checkpoint(tmp_path), last_checkpoint(undisturbed))
    assert records(tmp_path) == records(undisturbed)


def test_the_checkpoint_of_an_epoch_is_written_before_its_evaluation(
    scenes: Path, tmp_path: Path
) -> None:
    saved: list[int] = []

    def look(
        backbone: Backbone, autocast: Autocast, stopped: Callable[[], bool]
    ) -> tuple[Metric, ...]:
        found = checkpoint.newest(tmp_path / "checkpoints")
        saved.append(0 if found is None else checkpoint.load(found).step)
        return ()

    trainer(scenes, tmp_path).train(look)
    assert saved == [0, 6, 12]


def test_a_step_that_fails_in_its_update_is_not_saved(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(scenes, tmp_path, "checkpoint.every_minutes=0")
    whole = made.distiller.update_teacher_

    def fail(momentum: float) -> None:
        if made.step == 3:
            raise torch.OutOfMemoryError("no room for 2.5 GiB")
        whole(momentum)

    monkeypatch.setattr(made.distiller, "update_teacher_", fail)
    with pytest.raises(UserError, match="out of memory with 8 images"):
        made.train()
    assert last_checkpoint(tmp_path).step == 3
    made.step = 4
    with pytest.raises(UserError, match="failed in its update, so it was not saved"):
        made.save()


def test_a_run_interrupted_in_its_last_step_is_finished_and_measured(
    scenes: Path, tmp_path: Path, undisturbed: Path
) -> None:
    made = trainer(scenes, tmp_path)
    interrupt_after(made, 11)
    assert made.train(Watch()).finished
    assert records(tmp_path) == records(undisturbed)


def test_a_second_ctrl_c_ends_the_run_at_once_and_handlers_are_given_back(
    scenes: Path, tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    made = trainer(scenes, tmp_path)
    interrupt_after(made, 2)
    hook = made.distiller.student.backbone.vit.cls_token
    assert isinstance(hook, nn.Parameter)
    hook.register_post_accumulate_grad_hook(
        lambda _: os.kill(os.getpid(), signal.SIGINT) if made.step == 2 else None
    )
    with pytest.raises(KeyboardInterrupt):
        made.train()
    assert not (tmp_path / "checkpoints").exists()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_finished_run_is_left_alone(scenes: Path, undisturbed: Path) -> None:
    def state() -> dict[str, tuple[int, bytes]]:
        files = (path for path in undisturbed.rglob("*") if path.is_file())
        return {
            str(path): (path.stat().st_ino, path.read_bytes())
            for path in files
            if path.parent != undisturbed
        }

    before, logged = state(), records(undisturbed)
    watch = Watch()
    assert trainer(scenes, undisturbed).train(watch).finished
    assert watch.seen == []
    assert state() == before
    assert records(undisturbed) == logged


def test_checkpoints_are_written_on_the_way_and_few_are_kept(scenes: Path, tmp_path: Path) -> None:
    made = trainer(scenes, tmp_path, "checkpoint.every_minutes=0", "checkpoint.keep=3")
    made.train()
    kept = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert kept == ["step-00000010", "step-00000011", "step-00000012"]


@pytest.mark.parametrize(("every", "kept"), [(1, [6, 12, 18]), (2, [12, 18]), (3, [18])])
def test_the_checkpoints_of_some_epochs_are_written_and_kept(
    scenes: Path, tmp_path: Path, every: int, kept: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made = trainer(
        scenes,
        tmp_path,
        f"checkpoint.keep_every_epochs={every}",
        "checkpoint.keep=1",
        "schedule.epochs=3",
        "monitor.knn_every_epochs=0",
    )
    made.train()
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == [f"step-{step:08d}" for step in kept]
    said = [line for line in caplog.messages if line.startswith("keeps ")]
    epochs = "1 epoch" if every == 1 else f"{every} epochs"
    assert len(said) == 1
    assert said[0].startswith(f"keeps {len(kept)} checkpoint")
    assert said[0].endswith(f"the newest 1, and that of every {epochs}")


def test_too_little_room_for_all_checkpoints_is_a_warning_before_the_first_step(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = trainer(scenes, tmp_path, "checkpoint.keep_every_epochs=1", "schedule.epochs=1")
    room = 2 * made.state.checkpoint_bytes
    monkeypatch.setattr(made.folder, "free_bytes", lambda: room)
    made.train()
    (line,) = (line for line in caplog.messages if "the checkpoints to come take" in line)
    assert "make room, or keep fewer (checkpoint.keep, checkpoint.keep_every_epochs)" in line


def test_the_size_of_a_checkpoint_is_known_before_the_first_step(
    scenes: Path, tmp_path: Path
) -> None:
    made = trainer(scenes, tmp_path, "schedule.epochs=1")
    foreseen = made.state.checkpoint_bytes
    made.train()
    (folder,) = (tmp_path / "checkpoints").iterdir()
    written = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    assert foreseen == pytest.approx(written, rel=0.02), "names and counts of steps come on top"


def test_a_full_disk_is_said_before_any_training(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(scenes, tmp_path)
    monkeypatch.setattr(type(made.state), "checkpoint_bytes", 10**17)
    with pytest.raises(UserError, match=r"a checkpoint takes 100000000\.0 GB, but the disk of"):
        made.train(Watch())
    assert records(tmp_path) == []


def test_workers_may_change_in_between_and_the_end_is_the_same_to_the_bit(
    scenes: Path, tmp_path: Path, undisturbed: Path
) -> None:
    made = trainer(scenes, tmp_path)
    interrupt_after(made, 3)
    made.train(Watch())
    again = trainer(scenes, tmp_path, "train.workers=2", "checkpoint.keep=1")
    assert again.train(Watch()).finished
    assert len(list((tmp_path / "checkpoints").iterdir())) == 1
    assert same_tensors(last_checkpoint(tmp_path), last_checkpoint(undisturbed))
    assert records(tmp_path) == records(undisturbed)


def test_micro_batches_may_change_in_between_and_the_end_is_the_same_but_for_rounding(
    scenes: Path, tmp_path: Path, undisturbed: Path
) -> None:
    made = trainer(scenes, tmp_path)
    interrupt_after(made, 3)
    made.train()
    assert trainer(scenes, tmp_path, "train.accumulate=2").train().finished
    ours = last_checkpoint(tmp_path).tensors["weights"]
    theirs = last_checkpoint(undisturbed).tensors["weights"]
    # A step moves a weight by up to 2.5e-4. Attention does not depend on the biases of its keys,
    # so their gradient is all rounding, which Adam magnifies to some 1e-6; others agree to 1e-7.
    torch.testing.assert_close(dict(ours), dict(theirs), rtol=0, atol=1e-5)
    assert losses(tmp_path) == pytest.approx(losses(undisturbed), rel=1e-5)


def test_a_run_on_other_images_is_refused_and_untouched(scenes: Path, tmp_path: Path) -> None:
    made = trainer(scenes, tmp_path)
    interrupt_after(made, 3)
    made.train()
    before = last_checkpoint(tmp_path)
    source = open_images(scenes).train
    with pytest.raises(UserError, match=r"a run on 48 images, these are 40; choose another --out"):
        Trainer(TINY, source.subset(range(40)), tmp_path)
    assert same_tensors(last_checkpoint(tmp_path), before)


def test_a_step_whose_checkpoint_could_not_be_written_is_not_taken_for_saved(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(scenes, tmp_path)

    def fail(*arguments: object, **settings: object) -> None:
        raise UserError("cannot write the checkpoint")

    with monkeypatch.context() as patched:
        patched.setattr(made.folder, "save", fail)
        made.save()
        with pytest.raises(UserError, match="cannot write the checkpoint"):
            made.checkpoints.finish()
    made.save()
    made.checkpoints.finish()
    assert last_checkpoint(tmp_path).step == 0


def test_weights_that_are_not_finite_are_never_saved(scenes: Path, tmp_path: Path) -> None:
    made = trainer(scenes, tmp_path)
    made.save()
    made.step = 1
    with torch.no_grad():
        made.distiller.student.backbone.mask_token[0, 0] = torch.nan
    with pytest.raises(UserError, match=r"not finite after step 1; .*lower schedule\.lr"):
        made.save()
    assert last_checkpoint(tmp_path).step == 0


def test_a_run_may_train_in_a_thread_of_a_program(scenes: Path, tmp_path: Path) -> None:
    outcomes: list[Outcome] = []
    made = trainer(scenes, tmp_path, "schedule.epochs=1")
    thread = threading.Thread(target=lambda: outcomes.append(made.train()))
    thread.start()
    thread.join(timeout=60)
    assert outcomes == [Outcome(tmp_path, 6, 6)]


def test_a_scaler_goes_on_with_its_scale(scenes: Path, tmp_path: Path) -> None:
    made = trainer(scenes, tmp_path, "train.precision=fp16")
    interrupt_after(made, 2)
    made.train()
    scale = made.precision.scaler.get_scale()
    assert scale < 2**16, "it begins too high and comes down"
    assert trainer(scenes, tmp_path, "train.precision=fp16").precision.scaler.get_scale() == scale


def test_pace_counts_steps_and_waiting_since_the_last_look() -> None:
    pace = Pace()
    pace.restart(10, 1.0)
    speed, waiting = pace.measure(14, 1.0)
    assert speed > 0
    assert waiting == 0
    speed, _ = pace.measure(14, 1.0)
    assert speed == 0


def test_a_subset_of_each_class_does_not_apply_to_images_without_labels(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, file in enumerate(sorted((scenes / "train").rglob("*.png"))):
        shutil.copy(file, flat / f"{number}.png")
    everything = trainer(flat, tmp_path / "run", "data.per_class=2")
    assert everything.loader.steps_per_epoch == 48 // TINY.train.batch_size
    assert "data.per_class=2 does not apply: all 48 are used" in caplog.text


def test_a_run_that_must_stop_saves_what_it_has(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(scenes, tmp_path / "run")
    whole = made.loader.epoch

    def spoiled(epoch: int, start_step: int = 0) -> Iterator[Batch]:
        batches = whole(epoch, start_step)
        yield next(batches)
        raise UserError("16 files in a row cannot be read")

    monkeypatch.setattr(made.loader, "epoch", spoiled)
    with pytest.raises(UserError, match="16 files in a row"):
        made.train()
    assert trainer(scenes, tmp_path / "run").step == 1


def test_too_little_memory_is_one_line_with_the_way_out(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = trainer(scenes, tmp_path / "run")

    def full(*_: object, **settings: object) -> None:
        raise torch.OutOfMemoryError("no room for 2.5 GiB")

    monkeypatch.setattr(made.distiller, "loss_parts", full)
    way_out = r"out of memory with 8 images in 1 parts; use train\.accumulate=2"
    with pytest.raises(UserError, match=way_out):
        made.train()
