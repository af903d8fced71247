"""What is measured while a network trains: nearest neighbours where labels exist, objects where
masks exist, and the quality of the features wherever there are images."""

import logging
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.subset import first_per_class, first_percent, split_holdout, spread_evenly
from attmask.evaluation.features.forward import (
    Autocast,
    CachedCrops,
    Count,
    Features,
    extract_cached,
    frozen,
    normalise,
    read_in_order,
)
from attmask.evaluation.metrics.baselines import colour_features, pixel_features
from attmask.evaluation.metrics.geometry import alignment, effective_rank, uniformity
from attmask.evaluation.metrics.objects import ObjectMasks, measure_objects
from attmask.evaluation.protocols.knn import knn_accuracy, reported
from attmask.evaluation.protocols.label_free import RandomView
from attmask.evaluation.reporting.progress import counting
from attmask.interrupt import stopping
from attmask.models.backbone import Backbone
from attmask.monitor import MonitorConfig

log = logging.getLogger(__name__)

HOLDOUT = 0.1
"""The share of labelled training images that are asked about where no others can be."""
ALIGNED_IMAGES = 500
"""Alignment needs two more passes through the network: a mean over so many images is enough."""
BATCH = 256


class OnlineEvaluation:
    """Small measures of a backbone that is still in training; crops for k-NN and quality are read
    once. Quality is measured on the images that k-NN asks about, which go through the network
    once for both; without labels on those to validate on, or else on some to train on."""

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
        held_out = images.held_out
        self.objects = held_out or images.train
        self.objects_with_mask = len(ObjectMasks(self.objects))
        self.has_objects = self.objects_with_mask > 0
        bank, asked, most = _bank_and_queries(images, data, monitor)
        self.queries = self._crops(asked, most)
        if bank is not None:
            self.bank = self._crops(bank, monitor.knn_max_bank_images)
            self.classes = len(asked.classes)  # it may have classes that the bank lacks
            self.k = min(monitor.knn_k, len(self.bank))
        labels = None if self.queries.labels is None else self.queries.labels.numpy()
        self.probe = spread_evenly(labels, len(self.queries), monitor.quality_max_images)
        some = spread_evenly(None, len(self.probe), ALIGNED_IMAGES)
        self.views = self._views(asked, [self.queries.indices[self.probe[i]] for i in some])

    def __call__(
        self,
        backbone: Backbone,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, float]:
        """Numbers to log: k-NN accuracy in per cent, shares of attention and of hidden objects,
        rank, alignment and uniformity of the features.

        Raises StopRequestedError between two batches once `stopped` says so.
        """
        with counting("evaluating", self._images_to_read()) as shown:
            count = stopping(shown, stopped)
            queries = self._features(backbone, self.queries, autocast, count)
            return (
                self._knn(backbone, queries, autocast, count)
                | self._objects(backbone, autocast, count)
                | self._quality(backbone, queries.vectors[self.probe], autocast, count)
            )

    def _images_to_read(self) -> int:
        """How many images go through the network in one evaluation."""
        bank = 0 if self.bank is None else len(self.bank)
        objects = min(self.objects_with_mask, self.monitor.knn_max_query_images)
        return len(self.queries) + bank + objects + self.views.shape[:2].numel()

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

    def _features(
        self, backbone: Backbone, crops: CachedCrops, autocast: Autocast, count: Count
    ) -> Features:
        return extract_cached(
            backbone, crops, data=self.data, batch_size=BATCH, autocast=autocast, count=count
        )

    def _knn(
        self, backbone: Backbone, queries: Features, autocast: Autocast, count: Count
    ) -> dict[str, float]:
        if self.bank is None:
            return {}
        bank = self._features(backbone, self.bank, autocast, count)
        accuracy = knn_accuracy(bank, queries, k=self.k, classes=self.classes)
        return {f"knn/{name}": value for name, value in reported(accuracy, self.k).items()}

    def _objects(self, backbone: Backbone, autocast: Autocast, count: Count) -> dict[str, float]:
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
            count=count,
        )
        return report.as_metrics()

    def _quality(
        self, backbone: Backbone, plain: Float[Tensor, "M D"], autocast: Autocast, count: Count
    ) -> dict[str, float]:
        first, second = (self._cls(backbone, view, autocast, count) for view in self.views)
        numbers = {
            "quality/rank": effective_rank(plain),
            "quality/alignment": alignment(first, second),
        }
        if len(plain) > 1:
            numbers["quality/uniformity"] = uniformity(plain)
        return numbers

    def _cls(
        self, backbone: Backbone, crops: UInt8[Tensor, "M C H W"], autocast: Autocast, count: Count
    ) -> Float[Tensor, "M D"]:
        rows: list[Tensor] = []
        with frozen(backbone):
            for some in crops.split(BATCH):
                images = normalise(some.to(backbone.device), self.data.mean, self.data.std)
                with autocast():
                    rows.append(backbone.summary(images).cls.float().cpu())
                count(len(some))
        return torch.cat(rows)

    def _views(self, source: Source, indices: list[int]) -> UInt8[Tensor, "2 M C H W"]:
        """Two random crops of each image, the same at every evaluation."""
        views = tuple(RandomView(self.image_size, view) for view in (0, 1))
        read = partial(_read_views, source, views, self.data)
        batches = read_in_order(read, indices, batch_size=BATCH, workers=self.workers)
        return torch.cat([batch for (batch,) in batches]).transpose(0, 1)

    def _crops(self, source: Source, most: int) -> CachedCrops:
        with counting("reading images to evaluate on", min(most, len(source))) as count:
            return CachedCrops(
                source,
                self.image_size,
                self.data,
                max_images=most,
                workers=self.workers,
                count=count,
            )


def _read_views(
    source: Source, views: tuple[RandomView, ...], data: DataConfig, index: int
) -> tuple[UInt8[Tensor, "V C H W"]]:
    pixels = decode(source, index, data)
    return (torch.stack([view.crop(pixels, index) for view in views]),)


def _trained_on(train: Source, data: DataConfig) -> Source:
    """The part of the training images that a recipe takes."""
    if data.percent is not None:
        return first_percent(train, data.percent)
    if data.per_class is not None and train.labels is not None:
        return first_per_class(train, data.per_class)
    return train


def crops_held(images: Images, data: DataConfig, monitor: MonitorConfig) -> int:
    """How many crops an online evaluation holds in memory for as long as a run lasts."""
    bank, asked, most = _bank_and_queries(images, data, monitor)
    queries = min(most, len(asked))
    views = 2 * min(queries, monitor.quality_max_images, ALIGNED_IMAGES)
    return queries + views + min(monitor.knn_max_bank_images, 0 if bank is None else len(bank))


def _bank_and_queries(
    images: Images, data: DataConfig, monitor: MonitorConfig
) -> tuple[Source | None, Source, int]:
    """Labelled images to look neighbours up in, others to classify by them, and how many of
    those at most; without labels, no images to look up in."""
    train, held_out = _trained_on(images.train, data), images.held_out
    without_labels = None, held_out or train, monitor.quality_max_images
    if train.labels is None or len(train.classes) < 2:
        return without_labels
    # Sets of metric learning are tested on classes of their own, which no neighbour can be of.
    asked = None if held_out is None else held_out.labels
    if held_out is not None and asked is not None and np.isin(asked, train.labels).any():
        return train, held_out, monitor.knn_max_query_images
    log.info(
        "no val or test images of the classes of train: online k-NN asks about %.0f %% of the "
        "training images",
        100 * HOLDOUT,
    )
    bank, queries = split_holdout(train, HOLDOUT)
    return (bank, queries, monitor.knn_max_query_images) if len(queries) else without_labels
