"""Weights & Biases offline: what is in its file, also after a run was resumed."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.monitor import MonitorConfig, check_trackers
from attmask.trackers.tracker import TrackedRun
from attmask.trackers.wandb import WeightsAndBiases, check_wandb
from tests.tracked import ended_offline_runs, offline_variables

SETTINGS = {"seed": 3, "train": {"batch_size": 8, "threads": None}}


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory: pytest.TempPathFactory) -> None:
    # For the whole process: wandb reads its variables once.
    os.environ.update(offline_variables(tmp_path_factory.mktemp("wandb")))
    check_wandb()


def test_metrics_and_settings_are_in_the_offline_file(tmp_path: Path) -> None:
    run = tmp_path / "images-tiny+seed-3"
    run.mkdir()
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    tracker = WeightsAndBiases(TrackedRun(run, 0, SETTINGS))
    tracker.log({"loss.total": 2.5, "knn.top1@10": 50.0}, step=0, epoch=0)
    tracker.log({"loss.total": math.nan, "occlusion.top1@0.3+x": 1.0}, step=10, epoch=1)
    tracker.close(failed=False)
    (stored,) = ended_offline_runs(run)
    assert stored.rows[0] == {"step": 0, "epoch": 0, "loss.total": 2.5, "knn.top1@10": 50.0}
    assert stored.rows[1]["occlusion.top1@0.3+x"] == 1.0
    assert math.isnan(float(stored.rows[1]["loss.total"]))
    assert stored.config["seed"] == 3
    assert stored.config["train"] == {"batch_size": 8, "threads": None}
    assert (stored.name, stored.project) == (run.name, "attmask")
    assert stored.exit_code == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_resumed_run_goes_on_under_its_id_and_sends_nothing_twice(tmp_path: Path) -> None:
    first = WeightsAndBiases(TrackedRun(tmp_path, 0, SETTINGS))
    for step in range(4):
        first.log({"loss.total": step / 10}, step, 0)
    first.close(failed=True)
    time.sleep(1.1)  # wandb names its folder after the second and the id
    sent = frozenset({(2, 0), (3, 0)})
    changed = {**SETTINGS, "train": {"batch_size": 8, "threads": 2}}
    second = WeightsAndBiases(TrackedRun(tmp_path, 2, changed, sent))
    second.log({"knn.top1": 10.0}, 1, 1)  # an evaluation that was interrupted
    for step in range(2, 6):
        second.log({"loss.total": step / 10}, step, 0)
    second.close(failed=False)
    before, after = ended_offline_runs(tmp_path)
    assert before.id == after.id
    assert (before.exit_code, after.exit_code) == (1, 0)
    assert [row["step"] for row in before.rows + after.rows] == [0, 1, 2, 3, 1, 4, 5]
    assert after.config["train"]["threads"] == 2


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError) as caught:
        check_trackers(MonitorConfig(wandb=True))
    assert str(caught.value) == (
        "monitor.wandb=true needs the package wandb; pip install 'attmask[wandb]'"
    )


def test_a_missing_login_is_one_line(tmp_path: Path) -> None:
    variables = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    variables |= offline_variables(tmp_path) | {"WANDB_MODE": "online", "HOME": str(tmp_path)}
    code = "from attmask.trackers.wandb import check_wandb; check_wandb()"
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={**variables, "PYTHONPATH": "src"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    ).stderr
    assert said.splitlines()[-1] == (
        "attmask.errors.UserError: monitor.wandb=true needs a login; run `wandb login`, or set "
        "WANDB_MODE=offline"
    )
