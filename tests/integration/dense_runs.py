"""Small trainings of dense prediction through the command, killed and resumed, on one or two
processes."""

import os
import signal
from pathlib import Path

import pytest

from attmask import checkpoint
from attmask.cli import main
from attmask.tuning.results import Results
from tests.processes import free_port, wait_for
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

FEW = (
    *SHORT,
    "train.batch_size=4",
    "train.precision=fp32",
    "schedule.epochs=3",
    "schedule.lr_warmup_steps=2",
    "selection.every_epochs=1",
)


def command(start: Path, data: Path, run: Path, *settings: str) -> list[str]:
    return ["finetune", str(start), str(data), "--out", str(run), *settings]


def complaint(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The one line of a command that fails."""
    capsys.readouterr()
    assert main(words) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith("attmask: "), said
    assert "Traceback" not in "\n".join(said)
    return said[-1]


def saved(run: Path) -> int:
    found = checkpoint.newest(run / "checkpoints")
    return 0 if found is None else checkpoint.step_of(found)


def killed_and_resumed(words: list[str], run: Path, said: Path, *after: int) -> None:
    """Run a command that saves at every step, kill it after some steps, and end it at last."""
    # With a worker, because beartype draws from Python's generator in the thread that saves.
    words = [*words, "checkpoint.every_minutes=0", "train.workers=1"]
    for steps in after:
        process = Forked(said, *words)
        wait_for(lambda least=steps: saved(run) >= least, "no checkpoint")  # type: ignore[misc]
        os.kill(process.pid, signal.SIGKILL)
        process.finish()
    assert main(words) == 0


def assert_same_runs(ours: Path, theirs: Path) -> None:
    """Weights, statistics, optimiser, best network and results, to the bit."""
    assert same_tensors(last_checkpoint(ours), last_checkpoint(theirs))
    kept = [checkpoint.load_newest(run / "best") for run in (ours, theirs)]
    assert kept[0] is not None
    assert kept[1] is not None
    assert kept[0].step == kept[1].step
    assert same_tensors(kept[0], kept[1])
    results = Results.read(ours)
    assert results is not None
    assert results == Results.read(theirs)


def launch(words: list[str], said: Path) -> list[Forked]:
    """The command in two processes that were launched together."""
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": "2"}
    common["MASTER_PORT"] = str(free_port())
    return [
        Forked(
            said / f"said-{rank}",
            *words,
            environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]


def in_two(words: list[str], said: Path) -> list[str]:
    """What two processes say that run a command to its end."""
    ended = [process.finish() for process in launch(words, said)]
    assert [status for status, _ in ended] == [0, 0], ended
    return [text for _, text in ended]


def kill_two(words: list[str], run: Path, said: Path) -> None:
    """The same, killed after the first checkpoint."""
    group = launch(words, said)
    wait_for(lambda: saved(run) > 0, "no checkpoint")
    for process in group:
        os.kill(process.pid, signal.SIGKILL)
        process.finish()
