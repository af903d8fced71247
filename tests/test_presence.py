"""A folder is held for all processes of a run, by the main one."""

import os
import socket
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.heartbeat import HEARTBEAT, read_beat
from attmask.presence import hold
from tests.groups import in_group


def test_a_folder_is_held_while_the_block_runs(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with hold(run) as heartbeat:
        heartbeat.update(state="training")
        found = read_beat(run)
        assert found is not None
        assert found.is_held
        assert found.processes == ((socket.gethostname(), os.getpid()),)
        with pytest.raises(UserError, match="is in use: process"), hold(run):
            pass
        heartbeat.update(state="finished")
    found = read_beat(run)
    assert found is not None
    assert found.state == "finished"
    with hold(run):
        pass


@pytest.mark.parametrize(
    ("fault", "error"), [(UserError("no room"), "no room"), (KeyError("x"), "KeyError")]
)
def test_an_error_in_training_is_the_last_state(
    tmp_path: Path, fault: Exception, error: str
) -> None:
    def train() -> None:
        with hold(tmp_path / "run") as heartbeat:
            heartbeat.update(state="training")
            raise fault

    with pytest.raises(type(fault)):
        train()
    found = read_beat(tmp_path / "run")
    assert found is not None
    assert (found.state, found.error) == ("failed", error)


def test_a_path_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = pytest.raises(UserError, match=r"cannot use .*; make room or choose another --out")
    with refused, hold(tmp_path / "file" / "run"):
        pass


def test_all_processes_are_refused_what_the_main_one_is(tmp_path: Path) -> None:
    def member(rank: int) -> str:
        with hold(tmp_path / "run") as heartbeat:
            heartbeat.update(state="training")
            found = read_beat(tmp_path / "run")
            assert rank > 0 or (found is not None and len(found.processes) == 2)
            with pytest.raises(UserError) as caught, hold(tmp_path / "run"):
                pass
            heartbeat.update(state="stopped")
        return str(caught.value)

    said = in_group(2, tmp_path, member)
    assert said[0] == said[1]
    assert "is in use" in said[0]
    assert (tmp_path / "run" / HEARTBEAT).exists()
