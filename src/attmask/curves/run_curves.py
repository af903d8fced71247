"""The curves of a run, read from its log."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float64

from attmask.curves.timing import Record, Session, sessions, training_hours
from attmask.errors import UserError
from attmask.events import Event, read_events
from attmask.heartbeat import read_beat
from attmask.kinds import read_config
from attmask.metric_catalog import Known, assumed, read_catalog
from attmask.monitor import TIME, read_metrics
from attmask.run_config import RunConfig
from attmask.run_status import read_status

Across: TypeAlias = Literal["epoch", "hours", "step"]
_PLACES = ("step", "epoch", TIME)
_LIVES = ("starting", "training", "evaluating", "stalled")


@dataclass(frozen=True)
class Axis:
    """Where the values of curves stand: one entry for each record of a kind."""

    epoch: Float64[np.ndarray, " n"]
    hours: Float64[np.ndarray, " n"]
    step: Float64[np.ndarray, " n"]

    def along(self, across: Across) -> Float64[np.ndarray, " n"]:
        """One of the three."""
        chosen: Float64[np.ndarray, " n"] = getattr(self, across)
        return chosen


@dataclass(frozen=True)
class Curve:
    """The values of one metric; NaN where it was not measured or not finite."""

    axis: Axis
    values: Float64[np.ndarray, " n"]

    def points(self, across: Across) -> tuple[np.ndarray, np.ndarray]:
        """Places and values, without what is not a number."""
        places = self.axis.along(across)
        known = np.isfinite(places) & np.isfinite(self.values)
        return places[known], self.values[known]


@dataclass(frozen=True)
class RunCurves:
    """A run as its curves and what happened to it."""

    name: str
    folder: Path
    config: RunConfig
    records: Sequence[Record]
    events: Sequence[Event]
    sessions: Sequence[Session]
    steps: Axis
    """Of the records of training steps."""
    evaluations: Axis
    curves: Mapping[str, Curve]
    catalog: Mapping[str, Known]

    def known(self, key: str) -> Known:
        """What a metric is; of the online k-NN, the title says so."""
        found = self.catalog.get(key)
        if found and key.startswith("knn.") and "k-NN" not in found.title:
            return found.model_copy(update={"title": f"k-NN {found.title}"})
        return found or assumed(key)

    @property
    def is_finished(self) -> bool:
        """Whether the training has ended as planned; old logs do not say it and count as such."""
        return not self.sessions or self.sessions[-1].ended == "finished"

    @property
    def epochs(self) -> float:
        """The epochs done so far."""
        ends = [axis.epoch[-1] for axis in (self.steps, self.evaluations) if len(axis.epoch)]
        return float(max(ends, default=0.0))


def read_curves(folder: Path, name: str | None = None) -> RunCurves:
    """The curves of a run; its name is that of its folder unless another is given."""
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder} holds no run; give a folder that `attmask pretrain` has made")
    config, records, events = (
        read_config(folder / "config.yaml"),
        read_metrics(folder),
        read_events(folder),
    )
    hours = training_hours(records, events, batch_size=config.train.batch_size)
    is_step = np.array(["loss.total" in record for record in records], dtype=bool)
    epochs = _epochs(records, is_step, _steps_per_epoch(folder, records, is_step))
    steps = np.array([record["step"] + 1 for record in records], dtype=np.float64)
    axes = {
        chosen: Axis(epochs[is_step == chosen], hours[is_step == chosen], steps[is_step == chosen])
        for chosen in (True, False)
    }
    kept = {
        chosen: [record for record, step in zip(records, is_step, strict=True) if step == chosen]
        for chosen in (True, False)
    }
    lives = bool(events) and read_status(folder).state in _LIVES
    return RunCurves(
        name=name or folder.absolute().name,
        folder=folder,
        config=config,
        records=records,
        events=events,
        sessions=sessions(events, records, lives=lives),
        steps=axes[True],
        evaluations=axes[False],
        curves={
            key: Curve(axes[chosen], _column(kept[chosen], key))
            for chosen in (True, False)
            for key in dict.fromkeys(key for record in kept[chosen] for key in record)
            if key not in _PLACES
        },
        catalog=read_catalog(folder),
    )


def read_all(folders: Sequence[Path]) -> list[RunCurves]:
    """The curves of several runs under distinct names."""
    absolute = [folder.absolute() for folder in folders]
    if repeated := next((f for f in absolute if absolute.count(f) > 1), None):
        raise UserError(f"{repeated} was given twice; give each run once")
    depth = 1
    names = ["/".join(folder.parts[-depth:]) for folder in absolute]
    while len(set(names)) < len(names):
        depth += 1
        names = ["/".join(folder.parts[-depth:]) for folder in absolute]
    return [read_curves(folder, name) for folder, name in zip(folders, names, strict=True)]


def _column(records: Sequence[Record], key: str) -> Float64[np.ndarray, " n"]:
    return np.array([_number(record.get(key)) for record in records], dtype=np.float64)


def _number(value: Any) -> float:
    """NaN for what is missing, and for null, which stands for a value that is not finite."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else math.nan


def _steps_per_epoch(folder: Path, records: Sequence[Record], is_step: np.ndarray) -> float | None:
    """The steps of an epoch, from evaluations, which follow whole epochs, or the heartbeat."""
    ratios = [
        (record["step"] + 1) / record["epoch"]
        for record, step in zip(records, is_step, strict=True)
        if not step and record.get("epoch", 0) > 0
    ]
    if ratios:
        return float(max(ratios))  # the last epoch may be incomplete
    beat = read_beat(folder)
    if beat is not None and beat.steps and beat.epochs:
        return beat.steps / beat.epochs
    return None


def _epochs(
    records: Sequence[Record], is_step: np.ndarray, steps_per_epoch: float | None
) -> Float64[np.ndarray, " n"]:
    """The epochs that are done at each record, as a number with a fraction for steps."""
    return np.array(
        [
            (record["step"] + 1) / steps_per_epoch
            if step and steps_per_epoch
            else float(record.get("epoch", math.nan))
            for record, step in zip(records, is_step, strict=True)
        ],
        dtype=np.float64,
    )
