"""A fine-tuning from its start to its results."""

import logging
from pathlib import Path

from attmask import distributed
from attmask.agreement import together
from attmask.data.pictures.endings import describe_skipped
from attmask.data.together import open_together
from attmask.divergence import DivergedError
from attmask.finetuning.config import FinetuneConfig
from attmask.finetuning.data import divide
from attmask.finetuning.evaluation import SELECTS, SELECTS_MULTI_LABEL, ClassifierEvaluation
from attmask.finetuning.results import conclude
from attmask.finetuning.trainer import FinetuneTrainer
from attmask.heartbeat import Heartbeat
from attmask.html_report.on_the_way import ReportsOnTheWay
from attmask.tuning.results import Finetuned
from attmask.tuning.start import starting_point

log = logging.getLogger(__name__)


def train_together(
    config: FinetuneConfig,
    data: Path,
    out: Path,
    named: str,
    heartbeat: Heartbeat,
    *,
    extend: bool,
) -> Finetuned:
    """Train to the end; a training that is no longer finite goes back to its last checkpoint."""
    images = open_together(data, index=out, channels=config.data.channels)
    log.info("%s, images of %s, run in %s", named, data, out)
    if images.skipped:
        log.info("%s", describe_skipped(images.skipped))
    with together():
        divided = divide(images, config.selection, config.labels)
    size = config.augment.size
    assert size is not None
    selects = SELECTS_MULTI_LABEL if divided.classes.multi_label else SELECTS
    reports = ReportsOnTheWay(out, config)
    while True:
        with together():
            start = starting_point(config.network.start, out, image_size=size)
        trainer = FinetuneTrainer(
            config,
            divided.train,
            start,
            divided.classes,
            selects=selects,
            heartbeat=heartbeat,
            extend=extend,
        )
        with together():
            trainer.folder.keep_origin(data)
            if distributed.is_main():
                images.keep_index(out)
        if distributed.is_main():
            log.info(
                "%d classes, evaluated on %s (%d images)",
                len(divided.classes),
                divided.selected_on,
                len(divided.selecting),
            )
        evaluation = ClassifierEvaluation(
            divided.selecting,
            divided.classes,
            config.data,
            image_size=size,
            workers=trainer.workers,
        )
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
