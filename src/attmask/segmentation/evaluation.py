"""Evaluation of a segmenter in training: the pixels of held-out images, on all processes."""

from collections.abc import Callable
from dataclasses import dataclass

from attmask.data.masks import MaskedImages
from attmask.dense.statistics import share_statistics_
from attmask.evaluation.features.forward import Autocast
from attmask.evaluation.metrics.segmentation import Segmentation
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.segmentation.counting import count_pixels
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.evaluation.showing import Showing
from attmask.metric import Metric
from attmask.models.upernet import Segmenter
from attmask.segmentation.config import SegmentConfig

SELECTS = "segment.miou"
"""The key of the metric that selects the best network."""


@dataclass(frozen=True, eq=False)
class SegmenterEvaluation:
    """Segments held-out images; all processes of a group call it together."""

    images: MaskedImages
    config: SegmentConfig
    image_size: int
    workers: int

    def __call__(
        self,
        network: Segmenter,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> tuple[Metric, ...]:
        """The metrics of the images, the one that selects the best network first."""
        return self.measure(network, autocast, stopped).metrics

    def measure(
        self,
        network: Segmenter,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Segmentation:
        """All measures of the images."""
        share_statistics_(network)
        with counting("evaluating", len(self.images)) as count:
            found = count_pixels(
                self.trained(network),
                self.images,
                autocast,
                workers=self.workers,
                stopped=stopped,
                count=count,
            )
        return found.result(self.images.classes.names)

    def trained(self, network: Segmenter) -> TrainedSegmenter:
        """A network with the classes of these images."""
        classes, config = self.images.classes, self.config
        showing = Showing(config.data, config.augment.long_short(self.image_size))
        return TrainedSegmenter(network, classes.names, classes.values, showing, config.inference)
