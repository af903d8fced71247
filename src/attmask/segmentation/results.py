"""The mistakes of the best segmenter of a finished training.

RUN/results/per_class.csv    predictions.png
"""

import logging
from dataclasses import replace

from attmask import distributed
from attmask.agreement import together
from attmask.data.masks import MaskedImages
from attmask.dense.data import Divided
from attmask.evaluation.loading import load_run
from attmask.evaluation.metrics.segmentation import NoPixelsError, Segmentation
from attmask.evaluation.reporting.segmentation import SHOWN_IMAGES, write_segmentation
from attmask.evaluation.segmentation.counting import examples
from attmask.models.upernet import Segmenter
from attmask.segmentation.evaluation import SegmenterEvaluation
from attmask.segmentation.trainer import SegmentTrainer
from attmask.tuning.results import RESULTS, Results, known_results, read_back, write_results

log = logging.getLogger(__name__)


def conclude(trainer: SegmentTrainer, divided: Divided[MaskedImages]) -> Results:
    """Measure the best network on the final images and write its mistakes; all processes do.

    A finished run that has its results keeps them.
    """
    if (known := known_results(trainer)) is not None:
        return known
    with together():
        segmenter = load_run(trainer.run).segmenter
    assert segmenter is not None
    segmenter.network.to(trainer.device)
    autocast = trainer.precision.autocast
    try:
        found = _measured(trainer, divided.final, segmenter.network)
    except NoPixelsError:
        if distributed.is_main():
            log.info(
                "the images of %s have no labelled pixel: nothing is measured on them",
                divided.measured_on,
            )
        divided = replace(divided, final=divided.selecting, measured_on=divided.selected_on)
        found = _measured(trainer, divided.final, segmenter.network)
    with together():
        if distributed.is_main():
            worst = examples(segmenter, divided.final, found.worst_first[:SHOWN_IMAGES], autocast)
            title = f"{trainer.run.name}, {divided.measured_on}"
            write_segmentation(trainer.run / RESULTS, found, worst, title=title)
            write_results(trainer, divided.selected_on, divided.measured_on, found.metrics)
    return read_back(trainer)


def _measured(trainer: SegmentTrainer, images: MaskedImages, network: Segmenter) -> Segmentation:
    config, size = trainer.config, trainer.start.image_size
    evaluation = SegmenterEvaluation(images, config, size, trainer.workers)
    return evaluation.measure(network, trainer.precision.autocast)
