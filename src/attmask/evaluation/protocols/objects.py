"""Attention on annotated objects, and the share of the object that each masking strategy hides."""

import itertools
from collections.abc import Iterator

from attmask import distributed
from attmask.evaluation.datasets.pictures import Shown
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import ReadBatch
from attmask.evaluation.features.images import say_unreadable
from attmask.evaluation.features.readout import AttentionMaps
from attmask.evaluation.metrics.objects import (
    ObjectMasks,
    ObjectRegions,
    ObjectReport,
    joined,
    measure_objects,
    object_metrics,
    object_report,
)
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.settings import Config, setting


class ObjectAttention(Config):
    """The share of the attention on objects, and of the objects that each strategy hides."""

    ratio: float = setting(
        0.3, "share of the patches that each masking strategy hides", paper="0.1 to 0.5", gt=0, lt=1
    )
    image_size: int | None = setting(
        None, "side of the centre crop in pixels (null: the network's own)", ge=1
    )

    def check(self, model: FrozenModel, data: Shown) -> None:
        """Check the images and the crop size."""
        check_images(data.images)
        check_crop(model, self.image_size)

    def measure(self, model: FrozenModel, data: Shown, extractor: FeatureExtractor) -> Measures:
        """Means over the images that show an object, in per cent."""
        size, images = self.image_size or model.image_size, data.images
        share = distributed.share_of(len(images))
        unread: list[int] = []
        with counting("reading images with objects", len(share)) as count:
            batches = extractor.stream(
                model,
                images,
                CenterCrop(size),
                AttentionMaps(),
                indices=share,
                target=ObjectRegions(ObjectMasks(images), size),
            )
            measured = measure_objects(
                _noting_unreadable(batches, share.start, unread),
                model.backbone.patch_size,
                ratio=self.ratio,
                seed=extractor.seed,
                first_image=share.start,
                count=count,
            )
        if everywhere := sorted(itertools.chain(*distributed.gather(unread))):
            say_unreadable(images, everywhere, quiet=images in extractor.known.unreadable)
            extractor.known.unreadable[images] = len(everywhere)
        found = object_report(joined(distributed.gather(measured)), images, self.ratio)
        return Measures(object_metrics(found), tuple(self._notes(found, data)))

    def _notes(self, found: ObjectReport, data: Shown) -> list[str]:
        notes = [
            f"the mask ratio is {self.ratio:.0%} for every strategy; hint and block hide fewer "
            "patches"
        ]
        if left_out := len(data.images) - found.images:
            notes.append(
                f"{left_out} of {len(data.images)} images were left out because their crop shows "
                "no object or they cannot be read"
            )
        return notes


def _noting_unreadable(
    batches: Iterator[ReadBatch], first: int, unread: list[int]
) -> Iterator[ReadBatch]:
    """Pass the batches on, and note the images that could not be read."""
    for batch in batches:
        unread += [first + i for i, good in enumerate(batch.readable.tolist()) if not good]
        first += len(batch.values)
        yield batch
