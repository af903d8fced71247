"""Evaluation during training: k-NN if there are labels, attention on objects and segmentation if
there are masks, and label-free metrics in any case."""

import logging
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from attmask import distributed
from attmask.agreement import SharedError, together
from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.subset import split_holdout, spread_evenly, thinned, trained_on
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop, Crop, RandomResizedCrop
from attmask.evaluation.features.forward import Autocast, Features, collect
from attmask.evaluation.features.images import CachedCrops, ImageReader
from attmask.evaluation.features.lockstep import Lockstep
from attmask.evaluation.features.readout import CLS, AttentionMaps
from attmask.evaluation.metrics.baselines import colour_features, pixel_features
from attmask.evaluation.metrics.geometry import alignment
from attmask.evaluation.metrics.objects import (
    ObjectMasks,
    ObjectMeasures,
    ObjectRegions,
    joined,
    measure_objects,
    object_metrics,
    object_report,
)
from attmask.evaluation.online_segmentation import OnlineSegmentation
from attmask.evaluation.protocols.knn import accuracy_metrics, knn_accuracy
from attmask.evaluation.protocols.label_free import LEAST_AREA, measures_of_features
from attmask.evaluation.reporting.progress import counting
from attmask.metric import Metric
from attmask.models.backbone import Backbone
from attmask.monitor import PretrainMonitorConfig

log = logging.getLogger(__name__)

HOLDOUT = 0.1
"""The share of the training images used as k-NN queries if there are no held-out images."""
ALIGNED_IMAGES = 500
"""Alignment needs two extra forward passes, so it is averaged over at most this many images."""
BATCH = 256
_OBJECTS_AT_ONCE = 64  # images whose masks are read beside them


class OnlineEvaluation:
    """Evaluates a backbone in training on a fixed subset of images, whose crops are read once.

    Label-free metrics use the features of the k-NN queries; without labels they use held-out
    images, or training images if none are held out.

    All processes of a group construct and call it together. Each reads, keeps and passes through
    the network its share of the images; then all have all features and compute the same metrics,
    which takes little time compared with the forward passes.
    """

    def __init__(
        self,
        images: Images,
        data: DataConfig,
        monitor: PretrainMonitorConfig,
        *,
        image_size: int,
        workers: int = 0,
    ) -> None:
        self.data, self.monitor, self.image_size = data, monitor, image_size
        self.workers = workers
        self.bank: CachedCrops | None = None
        held_out = images.held_out
        self.objects = held_out or images.train
        self.masks = ObjectMasks(self.objects)
        self.masked = self._with_masks(monitor.knn_max_query_images)
        bank, asked, most = _bank_and_queries(images, data, monitor)
        in_bank = None if bank is None else _some(bank, monitor.knn_max_bank_images)
        in_queries = _some(asked, most)
        _check_same_images(in_bank, in_queries, self.masked)
        self.segmentation = OnlineSegmentation(
            images, data, monitor.segment_max_images, image_size=image_size, workers=workers
        )
        center = CenterCrop(image_size)
        self.queries = self._crops(asked, center, in_queries)
        if bank is not None and in_bank is not None:
            self.bank = self._crops(bank, center, in_bank)
            self.classes = len(asked.classes)  # queries may have classes that the bank lacks
            self.k = min(monitor.knn_k, len(self.bank))
        labels = None if self.queries.labels is None else self.queries.labels.numpy()
        self.probe = spread_evenly(labels, len(self.queries), monitor.quality_max_images)
        some = spread_evenly(None, len(self.probe), ALIGNED_IMAGES)
        paired = [self.queries.indices[self.probe[i]] for i in some]
        views = (RandomResizedCrop(image_size, LEAST_AREA, view=view) for view in (0, 1))
        self.views = [self._crops(asked, view, paired) for view in views]

    def __call__(
        self,
        backbone: Backbone,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> tuple[Metric, ...]:
        """Metrics with the keys of the cards: k-NN, objects, segmentation, label-free metrics.

        Raises StopRequestedError between two batches if `stopped` returns true in any process.
        """
        with counting("evaluating", self._images_to_read()) as count:
            network = Lockstep(backbone, self.data, autocast, count, stopped)
            queries = self._features(network, self.queries)
            return (
                self._knn(network, queries)
                + self._objects(network)
                + self.segmentation(network)
                + self._quality(network, queries.vectors[self.probe])
            )

    def _images_to_read(self) -> int:
        """The number of images that one evaluation passes through the network."""
        bank = 0 if self.bank is None else len(self.bank)
        views = sum(map(len, self.views))
        return len(self.queries) + bank + len(self.masked) + len(self.segmentation) + views

    def baselines(self) -> dict[str, float]:
        """k-NN accuracy of chance, colour statistics and raw pixels, in per cent.

        All processes of a group call it together.
        """
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

    def _features(self, network: Lockstep, crops: CachedCrops) -> Features:
        """The features of all crops, of which each process computes its own."""
        own = collect(network.forward(crops.batches(BATCH), CLS, crops.reader.blank()))
        return Features(distributed.gather_rows(own), crops.labels)

    def _knn(self, network: Lockstep, queries: Features) -> tuple[Metric, ...]:
        if self.bank is None:
            return ()
        bank = self._features(network, self.bank)
        accuracy = knn_accuracy(bank, queries, k=self.k, classes=self.classes)
        return accuracy_metrics(accuracy, self.k)

    def _objects(self, network: Lockstep) -> tuple[Metric, ...]:
        if not self.masked:
            return ()
        ratio = 0.3
        try:
            measured = self._measure_objects(network, ratio)
            return object_metrics(object_report(measured, self.objects, ratio))
        except UserError as fault:  # masks are no reason to end a training
            if distributed.is_main():
                log.warning("%s; objects are not evaluated in this run", fault)
            self.masked = []
            return ()

    def _measure_objects(self, network: Lockstep, ratio: float) -> ObjectMeasures:
        """The measures of all images with a mask, of which each process computes its share."""
        share = distributed.share_of(len(self.masked))
        regions = ObjectRegions(self.masks, self.image_size)
        reader = ImageReader(self.objects, CenterCrop(self.image_size), self.data, regions)
        crops = reader.batches(
            self.masked[share.start : share.stop], batch_size=_OBJECTS_AT_ONCE, workers=self.workers
        )
        batches = network.forward(crops, AttentionMaps(), reader.blank())
        with together():
            try:
                own = measure_objects(
                    batches, network.backbone.patch_size, ratio=ratio, first_image=share.start
                )
            except UserError:
                for _ in batches:  # the other processes cannot call the network alone
                    pass
                raise
        return joined(distributed.gather(own))

    def _quality(self, network: Lockstep, plain: Float[Tensor, "M D"]) -> tuple[Metric, ...]:
        first, second = (self._features(network, view).vectors for view in self.views)
        return measures_of_features(plain, alignment(first, second)).metrics

    def _with_masks(self, most: int) -> list[int]:
        """The images with a mask to evaluate on, spread evenly over the classes."""
        masked = sorted(self.masks.files)
        labels = self.objects.labels
        of_masked = None if labels is None else [int(labels[i]) for i in masked]
        return [masked[i] for i in spread_evenly(of_masked, len(masked), most)]

    def _crops(self, source: Source, crop: Crop, indices: list[int]) -> CachedCrops:
        with counting("reading images for the evaluation", len(indices)) as count:
            return CachedCrops(
                source,
                crop,
                self.data,
                indices=indices,
                shared=True,
                workers=self.workers,
                count=count,
            )


def _check_same_images(*chosen: list[int] | None) -> None:
    """Raise an error if the processes, maybe on several machines, do not choose the same images."""
    if not distributed.all_agree(chosen == distributed.from_main(chosen)):
        raise SharedError(
            "the processes do not find the same images or masks to evaluate on; give all machines "
            "the same folder"
        )


def _some(source: Source, most: int) -> list[int]:
    return spread_evenly(source.labels, len(source), most)


def crops_held(images: Images, data: DataConfig, monitor: PretrainMonitorConfig) -> int:
    """The number of crops that an online evaluation keeps in memory during a run, which several
    processes share among them."""
    bank, asked, most = _bank_and_queries(images, data, monitor)
    queries = min(most, len(asked))
    views = 2 * min(queries, monitor.quality_max_images, ALIGNED_IMAGES)
    return queries + views + min(monitor.knn_max_bank_images, 0 if bank is None else len(bank))


def _bank_and_queries(
    images: Images, data: DataConfig, monitor: PretrainMonitorConfig
) -> tuple[Source | None, Source, int]:
    """The bank of labelled images, the queries and the maximum number of queries; without labels
    the bank is None."""
    most = monitor.knn_max_bank_images + monitor.knn_max_query_images + monitor.quality_max_images
    train = thinned(trained_on(images.train, data), round(most / HOLDOUT))
    held_out = None if images.held_out is None else thinned(images.held_out, most)
    without_labels = None, held_out or train, monitor.quality_max_images
    if train.labels is None or len(train.classes) < 2:
        return without_labels
    # Metric learning data sets test on classes that have no training images.
    asked = None if held_out is None else held_out.labels
    if held_out is not None and asked is not None and np.isin(asked, train.labels).any():
        return train, held_out, monitor.knn_max_query_images
    if distributed.is_main():
        log.info(
            "no val or test images of the training classes: online k-NN uses %.0f %% of the "
            "training images as queries",
            100 * HOLDOUT,
        )
    bank, queries = split_holdout(train, HOLDOUT)
    return (bank, queries, monitor.knn_max_query_images) if len(queries) else without_labels
