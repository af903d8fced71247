"""The mistakes of the best segmenter of a finished training.

RUN/results/per_class.csv    predictions.png
"""

from attmask import distributed
from attmask.agreement import together
from attmask.data.masks import MaskedImages
from attmask.dense.data import Divided
from attmask.evaluation.loading import load_run
from attmask.evaluation.reporting.segmentation import SHOWN_IMAGES, write_segmentation
from attmask.evaluation.segmentation.counting import examples
from attmask.segmentation.evaluation import SegmenterEvaluation
from attmask.segmentation.trainer import SegmentTrainer
from attmask.tuning.results import RESULTS, Results, known_results, read_back, write_results


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
    evaluation = SegmenterEvaluation(
        divided.final, trainer.config, trainer.start.image_size, trainer.workers
    )
    autocast = trainer.precision.autocast
    found = evaluation.measure(segmenter.network, autocast)
    with together():
        if distributed.is_main():
            worst = examples(segmenter, divided.final, found.worst_first[:SHOWN_IMAGES], autocast)
            title = f"{trainer.run.name}, {divided.measured_on}"
            write_segmentation(trainer.run / RESULTS, found, worst, title=title)
            write_results(trainer, divided.selected_on, divided.measured_on, found.metrics)
    return read_back(trainer)
