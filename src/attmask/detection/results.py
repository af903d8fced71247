"""The mistakes of the best detector of a finished training.

RUN/results/per_class.csv    predictions.png
"""

from attmask import distributed
from attmask.agreement import together
from attmask.data.coco import BoxedImages
from attmask.dense.data import Divided
from attmask.detection.evaluation import DetectorEvaluation
from attmask.detection.trainer import DetectTrainer
from attmask.evaluation.detection.measuring import examples
from attmask.evaluation.loading import load_run
from attmask.evaluation.reporting.detection import SHOWN_IMAGES, write_detection
from attmask.tuning.results import RESULTS, Results, known_results, read_back, write_results


def conclude(trainer: DetectTrainer, divided: Divided[BoxedImages]) -> Results:
    """Measure the best network on the final images and write its mistakes; all processes do.

    A finished run that has its results keeps them.
    """
    if (known := known_results(trainer)) is not None:
        return known
    with together():
        detector = load_run(trainer.run).detector
    assert detector is not None
    detector.network.to(trainer.device)
    evaluation = DetectorEvaluation(divided.final, trainer.config, trainer.workers)
    autocast = trainer.precision.autocast
    found = evaluation.measure(detector.network, autocast)
    with together():
        if distributed.is_main():
            chosen = [(index, found.f1[index]) for index in found.worst_first[:SHOWN_IMAGES]]
            worst = examples(detector, divided.final, chosen, autocast)
            title = f"{trainer.run.name}, {divided.measured_on}"
            write_detection(trainer.run / RESULTS, found, worst, detector.names, title=title)
            write_results(trainer, divided.selected_on, divided.measured_on, found.metrics)
    return read_back(trainer)
