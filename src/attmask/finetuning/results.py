"""The results of a finished fine-tuning: the best and the last network, and their mistakes.

RUN/results/results.json    the metrics of both, and what they were measured on
            per_class.csv    confusion.csv    confusion.png    of the best network
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch import Tensor

from attmask import atomic, checkpoint, distributed
from attmask.agreement import together
from attmask.errors import UserError
from attmask.evaluation.loading import BEST, load_run
from attmask.evaluation.reporting.classification import write_classification
from attmask.finetuning.classifier import Classifier
from attmask.finetuning.data import Divided
from attmask.finetuning.evaluation import ClassifierEvaluation
from attmask.finetuning.trainer import FinetuneTrainer
from attmask.monitor import read_metrics

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


def conclude(trainer: FinetuneTrainer, divided: Divided) -> Results:
    """Measure the best network on the final images and write its mistakes; all processes do.

    A finished run that has its results keeps them.
    """
    run = trainer.run
    known = distributed.from_main(Results.read(run))
    if known is not None and known.last_epoch == _epochs(trainer):
        return known
    with together():
        model = load_run(run)
    assert model.classifier is not None
    network = Classifier(model.backbone, len(divided.classes), trainer.config.network)
    network.head.load_state_dict({"weight": model.classifier.weight, "bias": model.classifier.bias})
    network.to(trainer.device).requires_grad_(False)
    evaluation = ClassifierEvaluation(
        divided.final,
        divided.classes,
        trainer.config.data,
        image_size=trainer.start.image_size,
        workers=trainer.workers,
    )
    scored = evaluation.score(network, trainer.precision.autocast)
    with together():
        if distributed.is_main():
            _write(trainer, divided, scored.labels, scored.logits)
    found = distributed.from_main(Results.read(run))
    if found is None:
        raise UserError(f"cannot read the results in {run / RESULTS}; check the disk")
    return found


def _epochs(trainer: FinetuneTrainer) -> int:
    return trainer.step // trainer.schedules.steps_per_epoch


def _write(trainer: FinetuneTrainer, divided: Divided, labels: Tensor, logits: Tensor) -> None:
    folder = trainer.run / RESULTS
    metrics = write_classification(
        folder,
        labels > 0 if divided.classes.multi_label else labels,
        logits,
        divided.classes.names,
        title=f"{trainer.run.name}, {divided.measured_on}",
    )
    by_epoch = {
        int(record["epoch"]): _of_evaluation(record)
        for record in read_metrics(trainer.run)
        if trainer.selects in record
    }
    kept, last = checkpoint.newest(trainer.run / BEST), _epochs(trainer)
    best, of_best = last, by_epoch[last]
    if kept is not None:
        best = checkpoint.step_of(kept) // trainer.schedules.steps_per_epoch
        of_best = dict(checkpoint.load(kept, only=()).info["metrics"])
    found = Results(
        selected_on=divided.selected_on,
        best_epoch=best,
        best=of_best,
        last_epoch=last,
        last=by_epoch[last],
        measured_on=divided.measured_on,
        measured={metric.key: metric.value for metric in metrics},
    )
    try:
        atomic.write(folder / _FILE, json.dumps(asdict(found), indent=1) + "\n")
    except OSError as fault:
        raise UserError(
            f"cannot write {folder / _FILE}: {fault.strerror}; {atomic.what_to_do(fault)}"
        ) from fault


def _of_evaluation(record: Mapping[str, object]) -> dict[str, float]:
    return {
        key: float(value)
        for key, value in record.items()
        if key.startswith("classify.") and isinstance(value, int | float)
    }
