"""One process holds a folder: others are refused while it lives and take over when it is dead."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from attmask import atomic, heartbeat
from attmask.errors import UserError
from attmask.heartbeat import HEARTBEAT, Heartbeat, Holder, read_beat
from tests.runs import environment

HOLD = """
import sys, time
from pathlib import Path
from attmask.heartbeat import Heartbeat
held = Heartbeat(Path(sys.argv[1]))
held.take()
held.update(state="training", step=7)
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.communicate()


def change(run: Path, **values: object) -> None:
    """Write another holder's values into the file."""
    found = json.loads((run / HEARTBEAT).read_text())
    found["holder"] |= values
    (run / HEARTBEAT).write_text(json.dumps(found))


def age(run: Path, seconds: float) -> None:
    """Make the file look as if it had been written so long ago."""
    then = time.time() - seconds
    os.utime(run / HEARTBEAT, (then, then))


def test_a_second_start_is_refused_with_who_holds_it_and_since_when(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(UserError) as caught:
        Heartbeat(tmp_path).take()
    said = str(caught.value)
    found = read_beat(tmp_path)
    assert found is not None
    assert f"{tmp_path} is in use: process {holder.pid} of {found.holder.user} on " in said
    assert " has worked there since 20" in said
    assert said.endswith("stop it first, or choose another --out")
    assert read_beat(tmp_path) == found, "untouched"


def test_a_frozen_process_still_holds_its_folder(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGSTOP)
    age(tmp_path, 10_000)
    with pytest.raises(UserError, match="is in use"):
        Heartbeat(tmp_path).take()


@pytest.mark.parametrize("is_reaped", [False, True])
def test_the_folder_of_a_killed_process_is_taken_over_with_a_line(
    tmp_path: Path,
    holder: subprocess.Popen[str],
    is_reaped: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    holder.kill()
    time.sleep(0.2)  # until it is a zombie
    if is_reaped:
        holder.wait()
    held = Heartbeat(tmp_path)
    held.take()
    assert f"{tmp_path} was left by process {holder.pid} of " in caplog.text
    assert "at step 7; taking over" in caplog.text
    held.release()


def test_another_process_with_the_same_number_does_not_hold_it(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    found = read_beat(tmp_path)
    assert found is not None
    assert found.holder.started is not None
    change(tmp_path, started=found.holder.started - 1)
    held = Heartbeat(tmp_path)
    held.take()
    held.release()


def test_a_heartbeat_of_another_machine_is_believed_until_it_is_old(
    tmp_path: Path, holder: subprocess.Popen[str], caplog: pytest.LogCaptureFixture
) -> None:
    holder.send_signal(signal.SIGSTOP)  # it writes no more
    change(tmp_path, machine="other-1234-1", host="other")
    age(tmp_path, heartbeat.OLD_SECONDS - 1.5)
    began = time.monotonic()
    held = Heartbeat(tmp_path)
    with caplog.at_level("INFO"):
        held.take()
    assert 1 < time.monotonic() - began < 10, "it has waited for a sign of life"
    assert "on other has held" in caplog.text
    assert "was left by process" in caplog.text
    held.release()


def test_a_sign_of_life_from_another_machine_is_a_refusal(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGSTOP)
    change(tmp_path, machine="other-1234-1", host="other")

    def beat() -> None:
        time.sleep(1)
        found = json.loads((tmp_path / HEARTBEAT).read_text())
        atomic.write(tmp_path / HEARTBEAT, json.dumps(found | {"step": 8}))

    threading.Thread(target=beat).start()
    began = time.monotonic()
    with pytest.raises(UserError, match=r"process .* on other has worked there"):
        Heartbeat(tmp_path).take()
    assert time.monotonic() - began < 10


def test_of_many_that_start_together_one_holds_the_folder(tmp_path: Path) -> None:
    racer = HOLD.replace("time.sleep(600)", "sys.stdin.read()")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", racer, str(tmp_path)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(6)
    ]
    said = [process.stdout.readline() for process in racers if process.stdout is not None]
    for process in racers:
        process.communicate()
    assert sorted(said) == [""] * 5 + ["held\n"]


def test_the_state_is_written_at_once_and_the_rest_with_the_next_beat(tmp_path: Path) -> None:
    held = Heartbeat(tmp_path / "run")
    held.take()
    held.update(step=3)
    held.update(state="evaluating")
    found = read_beat(tmp_path / "run")
    assert found is not None
    assert (found.state, found.step, found.is_held) == ("evaluating", 3, True)
    held.update(state="finished")
    held.release()
    found = read_beat(tmp_path / "run")
    assert found is not None
    assert not found.is_held
    again = Heartbeat(tmp_path / "run")
    again.take()
    again.release()


def test_it_beats_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)
    held = Heartbeat(tmp_path)
    held.take()
    held.update(step=5)
    until = time.monotonic() + 10
    while (found := read_beat(tmp_path)) is None or found.step != 5:
        assert time.monotonic() < until
        time.sleep(0.01)
    held.release()


def test_a_start_that_fails_leaves_the_folder_as_it_was(tmp_path: Path) -> None:
    held = Heartbeat(tmp_path / "new")
    held.take()
    held.release("no images")
    assert not (tmp_path / "new").exists()
    first = Heartbeat(tmp_path / "run")
    first.take()
    first.update(state="finished")
    first.release()
    before = (tmp_path / "run" / HEARTBEAT).read_bytes()
    second = Heartbeat(tmp_path / "run")
    second.take()
    second.release("other settings")
    assert (tmp_path / "run" / HEARTBEAT).read_bytes() == before


def test_a_training_that_fails_says_why(tmp_path: Path) -> None:
    held = Heartbeat(tmp_path)
    held.take()
    held.update(state="training")
    held.release("no room on the disk")
    found = read_beat(tmp_path)
    assert found is not None
    assert (found.state, found.error) == ("failed", "no room on the disk")


def test_a_process_that_was_taken_for_dead_notices_and_does_not_write(tmp_path: Path) -> None:
    held = Heartbeat(tmp_path)
    held.take()
    held.update(state="training")
    change(tmp_path, token="another", pid=1, host="other")
    held.update(state="evaluating")
    line = held.takeover()
    assert line is not None
    assert "process 1 of " in line
    assert " on other has trained in " in line
    assert line.endswith("this one stops and does not save")
    held.release("lost")
    found = read_beat(tmp_path)
    assert found is not None
    assert found.holder.token == "another"


def test_a_deleted_folder_is_not_made_again(tmp_path: Path) -> None:
    held = Heartbeat(tmp_path / "run")
    held.take()
    (tmp_path / "run" / HEARTBEAT).unlink()
    (tmp_path / "run").rmdir()
    held.update(state="training")
    assert held.takeover() is None
    held.release()
    assert not (tmp_path / "run").exists()


def test_a_disk_that_cannot_be_written_to_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    held = Heartbeat(tmp_path)
    held.take()

    def full(path: Path, content: str, *, flushes: bool) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "write", full)
    held.update(state="training")
    held.update(state="evaluating")
    monkeypatch.undo()
    assert caplog.text.count("No space left on device; training goes on") == 1
    held.update(state="finished")
    held.release()
    found = read_beat(tmp_path)
    assert found is not None
    assert found.state == "finished"


def test_one_that_was_not_taken_is_silent(tmp_path: Path) -> None:
    silent = Heartbeat(tmp_path / "run")
    silent.update(state="training", step=1)
    assert silent.takeover() is None
    silent.release()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("junk", ["", "{}", "[]", '{"state": 3}'])
def test_a_file_that_is_no_heartbeat_holds_nothing(tmp_path: Path, junk: str) -> None:
    (tmp_path / HEARTBEAT).write_text(junk)
    held = Heartbeat(tmp_path)
    held.take()
    held.release()


def test_a_holder_names_process_user_and_host() -> None:
    this = Holder.this()
    assert str(this) == f"process {os.getpid()} of {this.user} on {this.host}"
    assert this.lives is False, "it has taken nothing"
