"""What is measured while a network trains: nearest neighbours where labels exist, objects where
masks exist."""

import logging

from attmask.data.source import Images, Source
from attmask.data.sources import DataConfig
from attmask.evaluation.features import Autocast, CachedCrops, extract_cached
from attmask.evaluation.knn import colour_features, knn_accuracy, pixel_features
from attmask.evaluation.objects import ObjectMasks, measure_objects
from attmask.models.backbone import Backbone
from attmask.monitor import MonitorConfig

log = logging.getLogger(__name__)

HOLDOUT = 0.1
"""The share of labelled training images that are asked about where there is no val/."""


class OnlineEvaluation:
    """Small measures of a backbone that is still in training; crops for k-NN are read once."""

    def __init__(
        self,
        images: Images,
        data: DataConfig,
        monitor: MonitorConfig,
        *,
        image_size: int,
        workers: int = 0,
    ) -> None:
        self.data, self.monitor, self.image_size = data, monitor, image_size
        self.workers = workers
        self.bank: CachedCrops | None = None
        self.objects = images.val or images.train
        self.has_objects = len(ObjectMasks(self.objects)) > 0
        split = _bank_and_queries(images, data)
        if split is not None:
            bank, queries = split
            self.bank = self._crops(bank, monitor.knn_max_bank_images)
            self.queries = self._crops(queries, monitor.knn_max_query_images)
            self.classes = len(bank.classes)
            self.k = min(monitor.knn_k, len(self.bank))

    def __call__(self, backbone: Backbone, autocast: Autocast) -> dict[str, float]:
        """Numbers to log: k-NN accuracy in per cent, shares of attention and of hidden objects."""
        return self._knn(backbone, autocast) | self._objects(backbone, autocast)

    def rivals(self) -> dict[str, float]:
        """What k-NN reaches by chance, on colour statistics and on raw pixels, in per cent."""
        if self.bank is None:
            return {}
        colours, pixels = (
            knn_accuracy(bank, queries, k=self.k, classes=self.classes).top1
            for bank, queries in (
                colour_features(self.bank, self.queries),
                pixel_features(self.bank, self.queries),
            )
        )
        return {"chance": 100 / self.classes, "mean colour + spread": colours, "raw pixels": pixels}

    def _knn(self, backbone: Backbone, autocast: Autocast) -> dict[str, float]:
        if self.bank is None:
            return {}
        bank, queries = (
            extract_cached(backbone, crops, data=self.data, batch_size=256, autocast=autocast)
            for crops in (self.bank, self.queries)
        )
        accuracy = knn_accuracy(bank, queries, k=self.k, classes=self.classes)
        return {"knn/top1": accuracy.top1, "knn/top5": accuracy.top5}

    def _objects(self, backbone: Backbone, autocast: Autocast) -> dict[str, float]:
        if not self.has_objects:
            return {}
        report = measure_objects(
            backbone,
            self.objects,
            image_size=self.image_size,
            data=self.data,
            max_images=self.monitor.knn_max_query_images,
            workers=self.workers,
            autocast=autocast,
        )
        return report.as_metrics()

    def _crops(self, source: Source, most: int) -> CachedCrops:
        return CachedCrops(
            source, self.image_size, self.data, max_images=most, workers=self.workers
        )


def _bank_and_queries(images: Images, data: DataConfig) -> tuple[Source, Source] | None:
    """Labelled images to look neighbours up in, and others to classify by them."""
    train = images.train
    if train.labels is None or len(train.classes) < 2:
        return None
    if data.per_class is not None:
        train = train.first_per_class(data.per_class)
    elif data.percent is not None:
        train = train.first_percent(data.percent)
    if images.val is not None and images.val.labels is not None:
        return train, images.val
    log.info("no val/ folder: online k-NN asks about %.0f %% of the training images", 100 * HOLDOUT)
    bank, queries = train.split_holdout(HOLDOUT)
    return (bank, queries) if len(queries) else None
