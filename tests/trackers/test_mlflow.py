"""MLflow without a server: what is in its database, also after a run was resumed."""

import math
import sys
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.monitor import MonitorConfig, check_trackers
from attmask.trackers.mlflow import Mlflow, check_mlflow, key_of, mlflow_key
from attmask.trackers.tracker import TrackedRun
from tests.tracked import MlflowRuns

SETTINGS = {"seed": 3, "train": {"batch_size": 8, "threads": None, "device": "cpu"}}


@pytest.mark.parametrize("key", ["loss.total", "knn.top1@10", "occlusion.top1@0.3", "a.b@4+5-x_y"])
def test_a_key_is_translated_and_back(key: str) -> None:
    assert key_of(mlflow_key(key)) == key


def test_a_resumed_run_goes_on_in_the_same_run_and_sends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    check_mlflow()
    run = tmp_path / "images-tiny+seed-3"
    run.mkdir()
    first = Mlflow(TrackedRun(run, 0, SETTINGS))
    for step in range(4):
        first.log({"loss.total": step / 10, "knn.top1@4+5": math.nan}, step, 0)
    first.close(failed=True)
    stored = MlflowRuns(run)
    (begun,) = stored.runs
    assert begun.info.status == "FAILED"
    assert begun.info.run_name == run.name
    assert begun.data.params == {
        "seed": "3",
        "train.batch_size": "8",
        "train.threads": "null",
        "train.device": "cpu",
    }
    assert math.isnan(stored.history("knn.top1@4+5")[0][1])

    changed = {**SETTINGS, "train": {"batch_size": 8, "threads": 2, "device": "cpu"}}
    second = Mlflow(TrackedRun(run, 2, changed, frozenset({(2, 0), (3, 0)})))
    second.log({"knn.top1": 10.0}, 1, 1)  # an evaluation that was interrupted
    for step in range(2, 6):
        second.log({"loss.total": step / 10}, step, 0)
    second.close(failed=False)
    stored = MlflowRuns(run)
    (resumed,) = stored.runs
    assert resumed.info.run_id == begun.info.run_id
    assert resumed.info.status == "FINISHED"
    assert stored.history("loss.total") == [(step, step / 10) for step in range(6)]
    assert stored.history("knn.top1") == [(1, 10.0)]
    assert resumed.data.params == begun.data.params
    assert resumed.data.tags["train.threads"] == "2"
    assert [path.name for path in tmp_path.iterdir()] == [run.name]


def test_a_missing_package_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(UserError) as caught:
        check_trackers(MonitorConfig(mlflow=True))
    assert str(caught.value) == (
        "monitor.mlflow=true needs the package mlflow; pip install 'attmask[mlflow]'"
    )
