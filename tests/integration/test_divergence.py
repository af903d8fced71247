"""Losses and gradients that are not finite: skipped, then back with a lower rate, then the end."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from attmask import checkpoint
from attmask.cli import main
from attmask.divergence import MOST_IN_A_ROW
from attmask.history import read_history
from attmask.monitor import read_metrics
from attmask.schedules import StepSchedule
from tests.poison import poisoned
from tests.processes import run_group
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

SETTINGS = (*SHORT, "schedule.epochs=4", "monitor.knn_every_epochs=0")
STEPS = 24


def command(data: Path, out: Path, *overrides: str) -> list[str]:
    return ["pretrain", str(data), "--recipe", "tiny", "--out", str(out), *SETTINGS, *overrides]


def losses(run: Path) -> dict[int, float]:
    return {r["step"]: r["loss.total"] for r in read_metrics(run) if "loss.total" in r}


def all_checkpoints_are_finite(run: Path) -> bool:
    loaded = [checkpoint.load(path) for path in sorted((run / "checkpoints").glob("step-*"))]
    tensors = [t for made in loaded for group in made.tensors.values() for t in group.values()]
    return bool(tensors) and all(bool(tensor.isfinite().all()) for tensor in tensors)


def test_a_bad_step_is_skipped_counted_and_its_images_are_named(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    with poisoned(lambda now: now.step in (7, 9)):
        assert main(command(scenes, run)) == 0
    assert "step 7: the loss or a gradient is not finite" in caplog.text
    assert "so the step was skipped, 1 in a row" in caplog.text
    assert sorted(losses(run)) == list(range(STEPS)), "all others were taken"
    assert read_metrics(run)[-1]["health.skipped_steps"] == 2
    assert last_checkpoint(run).info["skipped_steps"] == 2
    assert all_checkpoints_are_finite(run)
    incident = run / "incidents" / "step-00000007"
    named = (incident / "images.txt").read_text().splitlines()
    assert len(named) == 8
    assert all(Path(name).is_file() for name in named)
    about = json.loads((incident / "state.json").read_text())
    assert "backbone.mask_token" in about["not_finite"]
    assert about["schedule"]["step"] == 7
    weights = load_file(incident / "weights.safetensors")
    assert weights.keys() == last_checkpoint(run).tensors["weights"].keys()
    assert not (run / "incidents" / "step-00000009" / "weights.safetensors").exists(), "once"


def test_after_some_in_a_row_the_run_goes_back_with_half_the_learning_rate(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain, run = tmp_path / "plain", tmp_path / "run"
    assert main(command(scenes, plain)) == 0
    rates = {r["step"]: r["schedule.lr"] for r in read_metrics(plain)}

    def is_bad(now: StepSchedule) -> bool:
        return now.step >= 10 and now.lr > 0.6 * rates[now.step]

    with poisoned(is_bad):
        assert main(command(scenes, run, "monitor.knn_every_epochs=1")) == 0
    assert "no longer finite at step 14: going back to step 6, with 0.5 of" in caplog.text
    (back,) = read_history(run).returns
    assert (back.from_step, back.to_step) == (9 + MOST_IN_A_ROW, 6)
    steps = [r["step"] for r in read_metrics(run) if "loss.total" in r]
    assert steps == list(range(STEPS)), "every step once"
    halved = {r["step"]: r["schedule.lr"] for r in read_metrics(run) if "schedule.lr" in r}
    assert halved == {s: rates[s] * (1 if s < 6 else 0.5) for s in range(STEPS)}
    assert all_checkpoints_are_finite(run)


def test_a_run_that_does_not_recover_stops_with_one_line(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert main(command(scenes, run, "schedule.lr=1e30", "checkpoint.every_minutes=0")) == 1
    said = capsys.readouterr().err
    (line,) = [line for line in said.splitlines() if line.startswith("attmask: ")]
    assert "not finite" in line
    assert "start again with a lower schedule.lr or with train.precision=fp32" in line
    assert "went back 3 times, the last time with 0.125 of its learning rate" in line
    assert "Traceback" not in said
    assert len(read_history(run).returns) == 3
    found = checkpoint.load_newest(run / "checkpoints")
    assert found is None or all_checkpoints_are_finite(run)


@pytest.mark.slow
def test_a_run_that_was_killed_after_it_went_back_ends_with_the_same_bits(
    scenes: Path, tmp_path: Path
) -> None:
    def is_bad(now: StepSchedule) -> bool:
        return now.step >= 10 and now.lr > 2e-4  # half of it is below

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    rate = ["schedule.lr_final=2.5e-4", "monitor.knn_every_epochs=1"]
    with poisoned(is_bad):
        assert main(command(scenes, whole, *rate)) == 0
        words = command(scenes, killed, *rate)
        process = Forked(tmp_path / "said", *words)
        while len(read_history(killed).returns) == 0 and process.poll() is None:
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.finish()
        assert main(words) == 0
    assert len(read_history(killed).returns) == 1
    assert same_tensors(last_checkpoint(killed), last_checkpoint(whole))


@pytest.mark.parametrize("sharding", ["none", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_what_is_not_finite_in_one_process_is_skipped_by_all(
    scenes: Path, tmp_path: Path, sharding: str
) -> None:
    said = run_group(["-m", "tests.poisoned_runs", scenes, tmp_path, sharding], 2)
    assert said[0].count("so the step was skipped") == 1 + MOST_IN_A_ROW, said
    assert "so the step was skipped" not in said[1], "the main one tells"
    assert said[0].count("going back to step") == 1
    run = tmp_path / "run"
    named = (run / "incidents" / "step-00000003" / "images.txt").read_text().splitlines()
    assert len(named) == 8, "of both processes"
    assert all_checkpoints_are_finite(run)
    ours = last_checkpoint(run)
    assert ours.step == 12
    assert torch.isfinite(ours.tensors["weights"]["student.backbone.mask_token"]).all()
