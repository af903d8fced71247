"""A training of detection from its start to its results."""

import logging
from dataclasses import replace
from pathlib import Path

from attmask import distributed
from attmask.agreement import together
from attmask.data.coco import BoxedImages, open_boxed
from attmask.dense.config import in_steps
from attmask.dense.data import Divided, divide
from attmask.detection.config import DetectConfig
from attmask.detection.evaluation import SELECTS, DetectorEvaluation
from attmask.detection.results import conclude
from attmask.detection.trainer import DetectTrainer
from attmask.divergence import DivergedError
from attmask.errors import UserError
from attmask.heartbeat import Heartbeat
from attmask.html_report.on_the_way import ReportsOnTheWay
from attmask.tuning.results import Finetuned
from attmask.tuning.start import starting_point

log = logging.getLogger(__name__)


def train_together(
    config: DetectConfig,
    data: Path,
    out: Path,
    named: str,
    heartbeat: Heartbeat,
    *,
    extend: bool,
) -> Finetuned:
    """Train to the end; a training that is no longer finite goes back to its last checkpoint."""
    log.info("%s, images of %s, run in %s", named, data, out)
    with together():
        divided = _with_objects(divide(open_boxed(data), config.selection, config.data))
    train = divided.train
    config = in_steps(config, len(train))
    reports = ReportsOnTheWay(out, config)
    while True:
        with together():
            start = starting_point(config.network.start, out)
        trainer = DetectTrainer(
            config, train, start, selects=SELECTS, heartbeat=heartbeat, extend=extend
        )
        with together():
            trainer.folder.keep_origin(data)
        if distributed.is_main():
            log.info(
                "%d classes, evaluated on %s (%d images)",
                *(len(trainer.class_names), divided.selected_on, len(divided.selecting)),
            )
        evaluation = DetectorEvaluation(divided.selecting, config, trainer.workers)
        try:
            outcome = trainer.train(evaluation, reports)
        except DivergedError as fault:
            trainer.folder.go_back(fault)
            del trainer  # its memory is needed for the next
            continue
        results = conclude(trainer, divided) if outcome.finished else None
        if outcome.finished and not outcome.was_finished:
            reports.finish()
        return Finetuned(outcome, results)


def _with_objects(divided: Divided[BoxedImages]) -> Divided[BoxedImages]:
    """The images to train on with an object that is not a crowd; the others need one at least."""
    train = divided.train.with_objects()
    if not len(train):
        raise UserError(
            f"no image to train on in {divided.train.source.root} has an object; annotate some"
        )
    if not len(divided.selecting.with_objects()):
        raise UserError(
            f"no image to select the best network by ({divided.selected_on}) has an object; "
            "annotate some, or give others as val"
        )
    if left_out := len(divided.train) - len(train):
        _tell("%d training images without an object are left out", left_out)
    divided = replace(divided, train=train)
    if len(divided.final.with_objects()):
        return divided
    _tell("the images of %s have no objects: nothing is measured on them", divided.measured_on)
    return replace(divided, final=divided.selecting, measured_on=divided.selected_on)


def _tell(text: str, *values: object) -> None:
    """Log a line once, whatever the number of processes."""
    if distributed.is_main():
        log.info(text, *values)
