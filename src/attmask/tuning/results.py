"""The results of a finished fine-tuning: what its best and its last network reach.

RUN/results/results.json    the metrics of both, and what they were measured on
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attmask import atomic, checkpoint, distributed
from attmask.errors import UserError
from attmask.evaluation.loading import BEST
from attmask.loop import Outcome
from attmask.metric import Metric
from attmask.monitor import read_metrics
from attmask.tuning.trainer import TuningLoop

RESULTS = "results"
_FILE = "results.json"


@dataclass(frozen=True)
class Results:
    """What a fine-tuning reaches, in per cent."""

    selected_on: str
    """The images that selected the best epoch."""
    best_epoch: int
    best: Mapping[str, float]
    last_epoch: int
    last: Mapping[str, float]
    measured_on: str
    """The images of the last measure: those that selected, unless there are others."""
    measured: Mapping[str, float]
    """Of the best network."""
    last_step: int
    """The steps that were trained; the last epoch may be incomplete."""

    def lines(self) -> list[str]:
        """The results for people: the best epoch, the last one, and other images if measured."""
        key = next(iter(self.best))
        lines = [
            f"{key} on {self.selected_on}: best {self.best[key]:.2f} % (epoch {self.best_epoch}), "
            f"last {self.last[key]:.2f} % (epoch {self.last_epoch})"
        ]
        if self.measured_on != self.selected_on:
            lines.append(f"{key} on {self.measured_on}, best epoch: {self.measured[key]:.2f} %")
        return lines

    @classmethod
    def read(cls, run: Path) -> "Results | None":
        """The results of a run, if it has any."""
        try:
            return cls(**json.loads((run / RESULTS / _FILE).read_text()))
        except (OSError, ValueError, TypeError):
            return None


@dataclass(frozen=True)
class Finetuned:
    """How a fine-tuning ended, and what its networks reach if it was finished."""

    outcome: Outcome
    results: Results | None


AnyTuning = TuningLoop[Any, Any, Any, Any]


def known_results(trainer: AnyTuning) -> Results | None:
    """The results of a finished run that has them already; the same in all processes."""
    known = distributed.from_main(Results.read(trainer.run))
    return known if known is not None and known.last_step == trainer.step else None


def read_back(trainer: AnyTuning) -> Results:
    """The results that the main process has written, in all processes."""
    found = distributed.from_main(Results.read(trainer.run))
    if found is None:
        raise UserError(f"cannot read the results in {trainer.run / RESULTS}; check the disk")
    return found


def write_results(
    trainer: AnyTuning, selected_on: str, measured_on: str, measured: tuple[Metric, ...]
) -> None:
    """Write the results of a run; `measured` are the metrics of its best network."""
    group = trainer.selects.partition(".")[0]
    by_epoch = {
        int(record["epoch"]): _of_evaluation(record, group)
        for record in read_metrics(trainer.run)
        if trainer.selects in record
    }
    kept, last = checkpoint.newest(trainer.run / BEST), trainer.epoch
    best, of_best = last, by_epoch[last]
    if kept is not None:
        best = -(-checkpoint.step_of(kept) // trainer.schedules.steps_per_epoch)
        of_best = dict(checkpoint.load(kept, only=()).info["metrics"])
    found = Results(
        selected_on=selected_on,
        best_epoch=best,
        best=of_best,
        last_epoch=last,
        last=by_epoch[last],
        measured_on=measured_on,
        measured={metric.key: metric.value for metric in measured},
        last_step=trainer.step,
    )
    file = trainer.run / RESULTS / _FILE
    try:
        atomic.write(file, json.dumps(asdict(found), indent=1) + "\n")
    except OSError as fault:
        raise UserError(
            f"cannot write {file}: {fault.strerror}; {atomic.what_to_do(fault)}"
        ) from fault


def _of_evaluation(record: Mapping[str, object], group: str) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in record.items()
        if key.startswith(f"{group}.") and isinstance(value, int | float)
    }
