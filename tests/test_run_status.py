"""What `attmask status` tells of runs in every state."""

import json
import os
import time
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.errors import UserError
from attmask.heartbeat import HEARTBEAT, OLD_SECONDS, Heartbeat
from attmask.history import History, Return, now
from attmask.run_status import STALLED_SECONDS, read_status

PROGRESS = {
    "step": 120,
    "steps": 480,
    "epoch": 4,
    "epochs": 16,
    "loss": 4.25,
    "images_per_second": 131.25,
    "seconds_left": 2460.0,
    "step_time": now(),
    "processes": [("node1", 11), ("node2", 12)],
}


def beat(run: Path, state: str, **values: object) -> None:
    """A heartbeat of this process in a state."""
    held = Heartbeat(run)
    held.take()
    held.update(**{**PROGRESS, **values}, state=state)
    held.release()
    if state not in ("finished", "stopped", "failed"):
        change(run, token="x", pid=os.getppid(), started=_start(os.getppid()))


def _start(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def change(run: Path, **values: object) -> None:
    found = json.loads((run / HEARTBEAT).read_text())
    found["holder"] |= values
    (run / HEARTBEAT).write_text(json.dumps(found))


def a_checkpoint(run: Path, step: int) -> None:
    folder = run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{}")


def ago(seconds: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(time.time() - seconds, timezone.utc).isoformat()


def test_a_run_in_training_is_told_in_a_few_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beat(tmp_path, "training")
    a_checkpoint(tmp_path, 100)
    assert main(["status", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{tmp_path} is training"
    rows = dict(line.strip().split("  ", 1) for line in said[1:])
    shown = {name: value.strip() for name, value in rows.items()}
    assert shown["step"] == "120 of 480 (25.0 %, epoch 5 of 16)"
    assert shown["speed"] == "131.2 images/s"
    assert shown["time left"] == "41 min"
    assert shown["loss"] == "4.2500"
    assert shown["health"] == "well"
    assert shown["checkpoint"].startswith("step 100, ")
    assert shown["process"].endswith(", 2 processes")
    assert shown["heartbeat"].endswith(" s ago")


@pytest.mark.parametrize(
    ("state", "wanted", "status"),
    [("finished", "is finished", 0), ("stopped", "was stopped and saved; attmask resume", 0)],
)
def test_a_run_that_has_ended_well(
    tmp_path: Path, state: str, wanted: str, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    beat(tmp_path, state)
    assert main(["status", str(tmp_path)]) == status
    assert wanted in capsys.readouterr().out


def test_a_failed_run_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beat(tmp_path, "failed", error="no room on the disk")
    assert main(["status", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    assert "has failed; attmask resume" in said
    assert "no room on the disk" in said


def test_a_run_whose_process_is_gone_was_killed(tmp_path: Path) -> None:
    beat(tmp_path, "training")
    change(tmp_path, started=1)
    assert read_status(tmp_path).state == "killed"


def test_another_machine_is_believed_until_its_heartbeat_is_old(tmp_path: Path) -> None:
    beat(tmp_path, "training")
    change(tmp_path, machine="other")
    assert read_status(tmp_path).state == "training"
    found = json.loads((tmp_path / HEARTBEAT).read_text())
    (tmp_path / HEARTBEAT).write_text(json.dumps(found | {"time": ago(OLD_SECONDS + 1)}))
    found_status = read_status(tmp_path)
    assert found_status.state == "silent"
    assert "go on elsewhere with attmask resume" in found_status.headline()


def test_a_run_that_finishes_no_step_is_stalled(tmp_path: Path) -> None:
    beat(tmp_path, "training", step_time=ago(STALLED_SECONDS + 1))
    assert read_status(tmp_path).state == "stalled"


def test_findings_and_ways_back_are_health(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    beat(tmp_path, "training", findings=["uniform targets: ..."], skipped_steps=6)
    History().with_changes(tmp_path, returns=(Return(from_step=9, to_step=6, time=now()),))
    assert main(["status", str(tmp_path)]) == 3
    said = capsys.readouterr().out
    for line in ("uniform targets: ...", "6 steps skipped", "went back 1 time"):
        assert line in said


def test_json_has_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beat(tmp_path, "training")
    assert main(["status", "--json", str(tmp_path)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["is_well"] is True
    assert said["step"] == 120
    assert said == {**json.loads(json.dumps(read_status(tmp_path).to_dict())), **_ages(said)}


def _ages(said: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in said.items() if name.startswith("seconds_since")}


def test_a_run_of_an_earlier_version_has_no_heartbeat(tmp_path: Path) -> None:
    a_checkpoint(tmp_path, 40)
    found = read_status(tmp_path)
    assert (found.state, found.checkpoint_step, found.step) == ("left", 40, 40)


def test_a_folder_that_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no run"):
        read_status(tmp_path)
