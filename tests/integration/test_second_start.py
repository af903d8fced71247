"""Two starts in one folder: one trains, the other is refused or takes over."""

import json
import os
import signal
from pathlib import Path

import pytest

from attmask import checkpoint
from attmask.cli import main
from attmask.heartbeat import HEARTBEAT, read_beat
from tests.processes import wait_for
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

SETTINGS = (*SHORT, "monitor.knn_every_epochs=0", "checkpoint.every_minutes=0")


def command(data: Path, out: Path, epochs: int) -> list[str]:
    words = ["pretrain", str(data), "--recipe", "tiny", "--out", str(out), *SETTINGS]
    return [*words, f"schedule.epochs={epochs}"]


def is_training(run: Path) -> bool:
    found = read_beat(run)
    return found is not None and found.state == "training"


def test_a_second_start_is_refused_and_the_first_goes_on(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    first = Forked(tmp_path / "said", *command(scenes, run, 3000))
    wait_for(lambda: is_training(run), "it does not train")
    for words in (command(scenes, run, 3000), ["resume", str(run)]):
        assert main(words) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"attmask: {run} is in use: process {first.pid} of ")
        assert line.endswith("; stop it first, or choose another --out")
    assert main(["status", str(run)]) == 0
    os.kill(first.pid, signal.SIGTERM)
    status, said = first.finish()
    assert status == 128 + signal.SIGTERM, said
    found = read_beat(run)
    assert found is not None
    assert found.state == "stopped"


@pytest.mark.slow
def test_a_start_after_a_kill_takes_over_with_a_line_and_ends_with_the_same_bits(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    assert main(command(scenes, undisturbed, 6)) == 0
    killed = Forked(tmp_path / "said", *command(scenes, run, 6))
    wait_for(lambda: any(run.glob("checkpoints/step-*/state.json")), "no checkpoint")
    os.kill(killed.pid, signal.SIGKILL)
    killed.finish()
    assert main(command(scenes, run, 6)) == 0
    assert f"{run} was left by process {killed.pid} of " in caplog.text
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))


def test_a_run_that_was_taken_over_meanwhile_stops_and_does_not_save(
    scenes: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    first = Forked(tmp_path / "said", *command(scenes, run, 3000))
    wait_for(lambda: is_training(run), "it does not train")
    os.kill(first.pid, signal.SIGSTOP)  # as a machine that sleeps
    found = json.loads((run / HEARTBEAT).read_text())
    before = checkpoint.newest(run / "checkpoints")
    found["holder"] |= {"token": "another", "host": "other", "pid": 1}
    (run / HEARTBEAT).write_text(json.dumps(found))
    os.kill(first.pid, signal.SIGCONT)
    status, said = first.finish()
    assert (status, "Traceback" in said) == (1, False), said
    assert "attmask: process 1 of " in said
    assert "this one stops and does not save" in said
    assert json.loads((run / HEARTBEAT).read_text()) == found
    assert "saved at step" not in said
    after = checkpoint.newest(run / "checkpoints")
    begun = 0 if before is None else checkpoint.step_of(before)
    assert after is None or checkpoint.step_of(after) <= begun + 1, "what was being written"
