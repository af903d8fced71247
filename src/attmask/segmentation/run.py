"""A training of segmentation from its start to its results."""

import logging
from pathlib import Path

from attmask import distributed
from attmask.agreement import together
from attmask.data.masks import join_masked, open_masked
from attmask.dense.config import in_steps
from attmask.dense.data import divide
from attmask.divergence import DivergedError
from attmask.heartbeat import Heartbeat
from attmask.html_report.on_the_way import ReportsOnTheWay
from attmask.segmentation.config import SegmentConfig
from attmask.segmentation.evaluation import SELECTS, SegmenterEvaluation
from attmask.segmentation.results import conclude
from attmask.segmentation.trainer import SegmentTrainer
from attmask.tuning.results import Finetuned
from attmask.tuning.start import starting_point

log = logging.getLogger(__name__)


def train_together(
    config: SegmentConfig,
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
        splits = open_masked(data, config.masks, channels=config.data.channels)
        divided = divide(splits, config.selection, config.data, join_masked)
    config = in_steps(config, len(divided.train))
    size = config.augment.size
    assert size is not None
    reports = ReportsOnTheWay(out, config)
    while True:
        with together():
            start = starting_point(config.network.start, out, image_size=size)
        trainer = SegmentTrainer(
            config, divided.train, start, selects=SELECTS, heartbeat=heartbeat, extend=extend
        )
        with together():
            trainer.folder.keep_origin(data)
        if distributed.is_main():
            log.info(
                "%d classes, evaluated on %s (%d images)",
                *(len(trainer.class_names), divided.selected_on, len(divided.selecting)),
            )
        evaluation = SegmenterEvaluation(divided.selecting, config, size, trainer.workers)
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
