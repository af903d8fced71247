"""A pre-training from its start to its end, with the evaluation on the way."""

import logging
from pathlib import Path

from attmask import distributed
from attmask.adaptation.complete import load_start
from attmask.adaptation.start import keep_start
from attmask.agreement import together
from attmask.config import PretrainConfig
from attmask.data.images import Images
from attmask.data.together import open_together
from attmask.divergence import DivergedError
from attmask.evaluation.online import OnlineEvaluation
from attmask.heartbeat import Heartbeat
from attmask.html_report.on_the_way import ReportsOnTheWay
from attmask.loop import Outcome
from attmask.reference_resume import start_from_reference
from attmask.run_baselines import keep_baselines
from attmask.train import Trainer

log = logging.getLogger(__name__)


def pretrain_together(
    config: PretrainConfig,
    data: Path,
    out: Path,
    named: str,
    heartbeat: Heartbeat,
    *,
    extend: bool,
    resume_from: Path | None = None,
) -> Outcome:
    """Train to the end; a training that is no longer finite goes back to its last checkpoint.

    `resume_from` is a checkpoint of the authors' code, which becomes the first one of the run.
    """
    images = open_together(data, index=out, channels=config.data.channels)
    log.info("%s, images of %s, run in %s", named, data, out)
    for line in images.left_out():
        log.info("%s", line)
    if resume_from is not None:
        with together():
            if distributed.is_main():
                start_from_reference(resume_from, config, images.train, out)
    with together():
        start = load_start(config, out)
    evaluate: OnlineEvaluation | None = None
    reports = ReportsOnTheWay(out, config)
    while True:
        trainer = Trainer(
            config, images.train, out, heartbeat=heartbeat, extend=extend, start=start
        )
        with together():
            trainer.folder.keep_origin(data)
            if distributed.is_main():
                if start is not None and trainer.step == 0:
                    keep_start(out, start)
                images.keep_index(out)
        if evaluate is None and (evaluate := _evaluation(trainer, images)) is not None:
            keep_baselines(out, evaluate.baselines)
        try:
            outcome = trainer.train(evaluate, reports)
        except DivergedError as fault:
            trainer.folder.go_back(fault)
            del trainer  # its memory is needed for the next
            continue
        if outcome.finished and not outcome.was_finished:
            reports.finish()
        return outcome


def _evaluation(trainer: Trainer, images: Images) -> OnlineEvaluation | None:
    """The evaluation on the way, if any is due."""
    config = trainer.config
    if not trainer.finished:
        trainer.check_room()  # before images are read for the evaluation
    if config.monitor.knn_every_epochs > 0 and (
        not trainer.finished or trainer.evaluation_missing()
    ):
        return OnlineEvaluation(
            images,
            config.data,
            config.monitor,
            image_size=config.views.global_size,
            workers=trainer.workers,
        )
    return None
