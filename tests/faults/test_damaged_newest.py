"""A damaged newest checkpoint: the one before is used, loudly, and the end is the same."""

import logging
from pathlib import Path

import pytest

from tests.damaged_runs import BEFORE, DAMAGES, NEWEST, STEPS, damage, train
from tests.processes import ROOT, run_group
from tests.runs import last_checkpoint, same_tensors


def lines_about(run: Path, kind: str) -> list[str]:
    """What is said about a damage."""
    folder = run / "checkpoints"
    return [
        f"the checkpoint {folder / NEWEST} is damaged: {DAMAGES[kind][1]}",
        f"{folder / BEFORE} is used in its place",
        f"resuming at step {STEPS - 1}: what was trained after it is trained again (1 step or "
        f"more); what is damaged is put aside as {folder / f'damaged-{NEWEST}'}, delete it when "
        "you no longer need it",
    ]


@pytest.fixture(scope="module")
def whole(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole") / "run"
    assert train(scenes, run).finished
    return run


def assert_mended(run: Path, whole: Path) -> None:
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == [f"damaged-{NEWEST}", BEFORE, NEWEST]
    assert same_tensors(last_checkpoint(run), last_checkpoint(whole))


@pytest.mark.parametrize("kind", DAMAGES)
def test_a_damaged_newest_checkpoint_falls_back_loudly_and_is_put_aside(
    scenes: Path, tmp_path: Path, whole: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    damage(whole, run, kind)
    outcome = train(scenes, run)
    assert (outcome.first_step, outcome.steps) == (STEPS - 1, STEPS)
    warnings = [entry.message for entry in caplog.records if entry.levelno >= logging.WARNING]
    assert warnings == lines_about(run, kind)
    assert_mended(run, whole)
    caplog.clear()
    assert train(scenes, run).was_finished
    assert not any(entry.levelno >= logging.WARNING for entry in caplog.records), "met once"


@pytest.mark.slow
def test_two_processes_fall_back_together(scenes: Path, tmp_path: Path) -> None:
    said = run_group([ROOT / "tests" / "damaged_runs.py", scenes, tmp_path], 2)
    for kind in DAMAGES:
        assert_mended(tmp_path / kind, tmp_path / "whole")
        for line in lines_about(tmp_path / kind, kind):
            assert said[0].splitlines().count(line) == 1
            assert line not in said[1]
