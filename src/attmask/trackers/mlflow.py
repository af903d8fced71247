"""MLflow: a run at MLFLOW_TRACKING_URI, or in a database in RUN/mlflow."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from attmask.errors import UserError
from attmask.trackers.tracker import TrackedRun

_LARGEST_BATCH = 100  # of settings in one request
_TO_MLFLOW = str.maketrans({"@": "/", "+": " "})  # which our keys never contain
_FROM_MLFLOW = str.maketrans({"/": "@", " ": "+"})


def mlflow_key(key: str) -> str:
    """The name of a metric at MLflow, which allows neither @ nor +: knn.top1/10."""
    return key.translate(_TO_MLFLOW)


def key_of(mlflow_name: str) -> str:
    """The key of a metric from its name at MLflow."""
    return mlflow_name.translate(_FROM_MLFLOW)


def check_mlflow() -> None:
    """Raise an error if the package is missing, or what it needs for a local store."""
    # Every start of a database is an INFO on our terminal, and usage is reported by default.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    try:
        # Not left to the tracker's thread: a worker that is forked in the midst of it may hang.
        import_module("mlflow.tracking")
        if _address() is None:
            import_module("mlflow.store.tracking.sqlalchemy_store")
    except ImportError as fault:
        raise UserError(
            "monitor.mlflow=true needs the package mlflow; pip install 'attmask[mlflow]'"
        ) from fault


def _address() -> str | None:
    return os.environ.get("MLFLOW_TRACKING_URI") or None


def local_store(run: Path) -> str:
    """The address of the database in the folder of a run."""
    return f"sqlite:///{run.absolute() / 'mlflow' / 'mlflow.db'}"


class Mlflow:
    """Logs to a run of MLflow, which a resumed run goes on with."""

    def __init__(self, run: TrackedRun) -> None:
        from mlflow.tracking import MlflowClient

        address = _address() or local_store(run.folder)
        self._client = MlflowClient(tracking_uri=address)
        known = run.id_at("mlflow")
        resumed = known is not None and self._goes_on(known)
        self._sent = run.sent if resumed else frozenset()
        self._id = known if known is not None and resumed else self._new_run(run)
        run.keep_id("mlflow", self._id)
        self._log_settings(dict(_flat(run.settings)))

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        """Add the metrics under their keys, with / for @ and a space for +."""
        from mlflow.entities import Metric

        if (step, epoch) in self._sent:
            return
        now = int(time.time() * 1000)
        values = {"epoch": epoch, **metrics}
        rows = [Metric(mlflow_key(key), float(value), now, step) for key, value in values.items()]
        self._client.log_batch(self._id, metrics=rows)

    def close(self, failed: bool) -> None:
        """Mark the run as ended."""
        self._client.set_terminated(self._id, "FAILED" if failed else "FINISHED")

    def _goes_on(self, run_id: str) -> bool:
        """Open an earlier run again; False if this server does not have it."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.update_run(run_id, status="RUNNING")
        except MlflowException as fault:
            if fault.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        return True

    def _new_run(self, run: TrackedRun) -> str:
        experiment = os.environ.get("MLFLOW_EXPERIMENT_ID") or self._experiment(run)
        name = os.environ.get("MLFLOW_RUN_NAME", run.folder.absolute().name)
        return str(self._client.create_run(experiment, run_name=name).info.run_id)

    def _experiment(self, run: TrackedRun) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "attmask")
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        own = None if _address() else (run.folder.absolute() / "mlflow" / "artifacts").as_uri()
        return str(self._client.create_experiment(name, artifact_location=own))

    def _log_settings(self, settings: Mapping[str, str]) -> None:
        """Log the settings as parameters, which never change; one that did becomes a tag."""
        from mlflow.entities import Param, RunTag

        known = self._client.get_run(self._id).data.params
        new = [Param(key, value) for key, value in settings.items() if key not in known]
        for first in range(0, len(new), _LARGEST_BATCH):
            self._client.log_batch(self._id, params=new[first : first + _LARGEST_BATCH])
        changed = [
            RunTag(key, value) for key, value in settings.items() if known.get(key, value) != value
        ]
        self._client.log_batch(self._id, tags=changed[:_LARGEST_BATCH])


def _flat(settings: Mapping[str, Any], group: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys with their values as text."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{group}{name}.")
        else:
            yield f"{group}{name}", value if isinstance(value, str) else json.dumps(value)
