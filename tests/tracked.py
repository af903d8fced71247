"""What trackers have stored, read back from their files."""

import json
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from attmask.trackers.mlflow import key_of, local_store

_HEADER, _BLOCK = 7, 32 * 1024
_FIRST_OR_WHOLE, _LAST_OR_WHOLE = (1, 2), (1, 4)


def offline_variables(folder: Path) -> dict[str, str]:
    """Weights & Biases without a server, and with its own files in a folder of the test."""
    places = {f"WANDB_{kind}_DIR": str(folder / kind) for kind in ("CONFIG", "CACHE", "DATA")}
    return {"WANDB_MODE": "offline", **places}


def _messages(file: Path) -> Iterator[bytes]:
    """The messages of an offline file, which is framed as a log of LevelDB.

    wandb reads it in a program of its own; its Python package has the types alone.
    """
    content, at, message = file.read_bytes(), _HEADER, b""
    assert content[:4] == b":W&B"
    while at + _HEADER <= len(content):
        if _BLOCK - at % _BLOCK < _HEADER:
            at += _BLOCK - at % _BLOCK
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        if at + _HEADER + length > len(content):  # it is being written
            return
        part = content[at + _HEADER : at + _HEADER + length]
        message = part if kind in _FIRST_OR_WHOLE else message + part
        if kind in _LAST_OR_WHOLE:
            yield message
        at += _HEADER + length


class OfflineRun:
    """One process of a run at Weights & Biases, as its offline file has it."""

    def __init__(self, file: Path) -> None:
        types: Any = import_module("wandb.proto.wandb_internal_pb2")
        self.rows: list[dict[str, Any]] = []
        self.config: dict[str, Any] = {}
        self.exit_code: int | None = None
        for message in _messages(file):
            record = types.Record()
            record.ParseFromString(message)
            kind = record.WhichOneof("record_type")
            if kind == "run":
                self.id, self.name = record.run.run_id, record.run.display_name
                self.project = record.run.project
                self.config |= _values(record.run.config.update)
            elif kind == "history":
                row = _values(record.history.item)
                self.rows.append({k: v for k, v in row.items() if not k.startswith("_")})
            elif kind == "exit":
                self.exit_code = record.exit.exit_code


def _values(items: Any) -> dict[str, Any]:
    keys = [item.key or ".".join(item.nested_key) for item in items]
    return {key: json.loads(item.value_json) for key, item in zip(keys, items, strict=True)}


def offline_runs(run: Path) -> list[OfflineRun]:
    """What each process of a run has stored for Weights & Biases, oldest first."""
    files = sorted((run / "wandb").glob("offline-run-*/*.wandb"))
    return [OfflineRun(file) for file in files]


def ended_offline_runs(run: Path) -> list[OfflineRun]:
    """The same in the process that wrote them: wandb ends a file soon after its run."""
    deadline = time.monotonic() + 30
    while any(stored.exit_code is None for stored in offline_runs(run)):
        assert time.monotonic() < deadline, "a file has no end"
        time.sleep(0.05)
    return offline_runs(run)


class MlflowRuns:
    """What is in the local store of MLflow."""

    def __init__(self, run: Path) -> None:
        from mlflow.tracking import MlflowClient

        self.client = MlflowClient(tracking_uri=local_store(run))
        experiment = self.client.get_experiment_by_name("attmask")
        assert experiment is not None
        self.runs = list(self.client.search_runs([experiment.experiment_id]))

    def history(self, key: str) -> list[tuple[int, float]]:
        """Step and value of one metric of the only run."""
        (run,) = self.runs
        names = {key_of(name): name for name in run.data.metrics}
        found = self.client.get_metric_history(run.info.run_id, names[key])
        return [(metric.step, metric.value) for metric in found]
