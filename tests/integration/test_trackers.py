"""Whole runs with Weights & Biases and MLflow, in real processes and without a server."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from attmask.cli import main
from attmask.monitor import read_metrics
from tests.runs import SHORT, finish, last_checkpoint, start
from tests.tracked import MlflowRuns, offline_runs, offline_variables

BOTH = ("monitor.wandb=true", "monitor.mlflow=true")


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("WANDB_SERVICE", raising=False)  # that of this process, if it has one
    for name, value in offline_variables(tmp_path).items():
        monkeypatch.setenv(name, value)


def command(data: Path, out: Path, epochs: int, *overrides: str) -> list[str]:
    settings = (*SHORT, f"schedule.epochs={epochs}", "monitor.knn_every_epochs=2")
    return ["pretrain", str(data), "--recipe", "tiny", "--out", str(out), *settings, *overrides]


def wait_for(process: subprocess.Popen[str], *files: Path) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        if all(file.exists() for file in files):
            return
        time.sleep(0.02)
    pytest.fail(f"not there before the end: {files}, {process.communicate()}")


def services_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes that wandb has started for this one."""
    listed = subprocess.check_output(["ps", "-wweo", "pid,stat,args"], text=True)
    rows = [line.split(maxsplit=2) for line in listed.splitlines()]
    wanted = f"--pid {process.pid}"
    return [int(pid) for pid, stat, args in rows if args.endswith(wanted) and stat[0] != "Z"]


def stop(process: subprocess.Popen[str], run: Path) -> int:
    """Press Ctrl-C once trackers are open; return the step that was saved."""
    wait_for(process, run / "trackers.json")
    assert len(services_of(process)) == 1
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    status, out, err = finish(process)
    reached = last_checkpoint(run).step
    assert status == 130
    assert out.startswith(f"attmask: stopped and saved at step {reached} of 48;")
    assert "wandb" not in err.lower()
    assert "mlflow" not in err.lower()
    assert services_of(process) == []
    return reached


def logged(run: Path) -> list[dict[str, Any]]:
    """All records without their time, which trackers measure themselves."""
    return [{k: v for k, v in each.items() if k != "time"} for each in read_metrics(run)]


def test_ctrl_c_saves_and_leaves_no_process_of_weights_and_biases(
    scenes: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    stop(start(*command(scenes, run, 8, "monitor.wandb=true")), run)
    (stored,) = offline_runs(run)
    assert stored.rows == logged(run)
    assert stored.exit_code == 0


@pytest.mark.slow
def test_a_resumed_run_goes_on_at_both_with_every_record_once(scenes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    reached = stop(start(*command(scenes, run, 8, *BOTH)), run)
    assert reached < 48
    process = start("resume", run)
    status, out, _ = finish(process)
    done = f"attmask: done, 48 steps; the backbone and all metrics are in {run}\n"
    assert (status, out) == (0, done)
    assert services_of(process) == []
    records = logged(run)
    before, after = offline_runs(run)
    assert before.id == after.id
    assert before.rows + after.rows == records
    assert after.config["masking"]["strategy"] == "high"
    stored = MlflowRuns(run)
    for key in ("loss.total", "knn.top1"):
        wanted = [(record["step"], record[key]) for record in records if key in record]
        assert stored.history(key) == wanted
    assert stored.runs[0].data.params["masking.strategy"] == "high"


def test_a_missing_package_is_one_line_before_images_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    (tmp_path / "images").mkdir()  # empty, which would be an error too
    run = tmp_path / "run"
    assert main(command(tmp_path / "images", run, 1, "monitor.wandb=true")) == 1
    assert capsys.readouterr().err == (
        "attmask: monitor.wandb=true needs the package wandb; pip install 'attmask[wandb]'\n"
    )
    assert not run.exists()


@pytest.mark.slow
@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_outlives_the_service_of_weights_and_biases(
    scenes: Path, tmp_path: Path, blow: signal.Signals
) -> None:
    run = tmp_path / "run"
    process = start(*command(scenes, run, 20, "monitor.wandb=true"))
    wait_for(process, run / "trackers.json")
    (service,) = services_of(process)
    os.kill(service, blow)
    try:
        status = process.wait(120)
    finally:
        if blow == signal.SIGSTOP:
            os.kill(service, signal.SIGKILL)
    _, out, err = finish(process)
    assert status == 0
    assert out.startswith("attmask: done, 120 steps;")
    assert err.count("gets no more metrics until the run is resumed") == 1
    assert "Traceback" not in err
    assert sum("loss.total" in record for record in read_metrics(run)) == 120
