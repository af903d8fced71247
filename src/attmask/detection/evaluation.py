"""Evaluation of a detector in training: the objects of held-out images, on all processes."""

from collections.abc import Callable
from dataclasses import dataclass

from attmask.data.coco import BoxedImages
from attmask.dense.statistics import share_statistics_
from attmask.detection.config import DetectConfig
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.detection.measuring import detect_all
from attmask.evaluation.features.forward import Autocast
from attmask.evaluation.metrics.detection import Detection
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.showing import Showing
from attmask.metric import Metric
from attmask.models.detection.detector import Detector

SELECTS = "detect.box_ap"
"""The key of the metric that selects the best network."""


@dataclass(frozen=True, eq=False)
class DetectorEvaluation:
    """Detects the objects of held-out images; all processes of a group call it together."""

    images: BoxedImages
    config: DetectConfig
    workers: int

    def __call__(
        self,
        network: Detector,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> tuple[Metric, ...]:
        """The metrics of the images, the one that selects the best network first."""
        return self.measure(network, autocast, stopped).metrics

    def measure(
        self,
        network: Detector,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Detection:
        """All measures of the images."""
        share_statistics_(network)
        images, shown = self.images, self.config.shown
        showing = Showing(self.config.data, (shown.long_side, shown.short_side))
        detector = TrainedDetector(
            network, images.names, images.category_ids, showing, images.has_masks
        )
        with counting("evaluating", len(images)) as count:
            return detect_all(
                detector, images, autocast, workers=self.workers, stopped=stopped, count=count
            )
