"""Segmentation by nearest neighbours of patches during training, if the images have masks."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int16, UInt8
from torch import Tensor

from attmask import distributed
from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.mask_files import folder_with_masks, match_masks
from attmask.data.masks import (
    IGNORED,
    MaskedImages,
    MasksConfig,
    PixelClasses,
    class_values,
    classes_of_trimaps,
)
from attmask.data.source import Source
from attmask.data.subset import held_out, spread_evenly, trained_on
from attmask.errors import UserError
from attmask.evaluation.features.images import ImageReader
from attmask.evaluation.features.lockstep import Lockstep
from attmask.evaluation.features.squeezed import Squeezed
from attmask.evaluation.metrics.segmentation import Segmented
from attmask.evaluation.protocols.segment_knn import PREFIX, SegmentKnn
from attmask.evaluation.segmentation.labels import best_classes, class_shares, squeezed_labels
from attmask.evaluation.segmentation.neighbours import PatchBank, bank_of
from attmask.metric import Metric

log = logging.getLogger(__name__)

_MOST_PATCHES = 20_000  # in the bank: a search of some seconds at most
_SHARE_IN_BANK = 2 / 3
_HOLDOUT = 0.1
_AT_ONCE = 64  # images whose masks are read beside them
_SETTINGS = SegmentKnn()


@dataclass(frozen=True, eq=False)
class SqueezedMasks:
    """The labels of an image as the network sees it, for a reader of images."""

    images: MaskedImages
    size: int

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"] | None, index: int
    ) -> Int16[Tensor, "size size"]:
        """The label of each pixel of the squeezed image; none for an unreadable one."""
        if pixels is None:
            return torch.full((self.size, self.size), IGNORED, dtype=torch.int16)
        size_wh = (pixels.shape[1], pixels.shape[0])
        return squeezed_labels(self.images.read(index, size_wh), self.size)


class OnlineSegmentation:
    """The mean IoU of the task segment-knn on a few images, at the size that the network sees.

    The bank is of training images, the queries are of held-out ones. Masks are no reason to end a
    training: where they are wrong, one line says so and nothing is measured.
    """

    def __init__(
        self, images: Images, data: DataConfig, most: int, *, image_size: int, workers: int = 0
    ) -> None:
        self.data, self.image_size, self.workers = data, image_size, workers
        self.images = self._found(images, most)
        """The images of the bank and the queries, if there are any."""

    def __len__(self) -> int:
        """The number of images that one evaluation passes through the network."""
        return sum(map(len, self.images or ()))

    def __call__(self, network: Lockstep) -> tuple[Metric, ...]:
        """The mean IoU; nothing without masks. All processes call it together."""
        if self.images is None:
            return ()
        try:
            return self._measured(network, *self.images)
        except UserError as fault:
            self.images = None
            _tell(fault)
            return ()

    def _measured(
        self, network: Lockstep, bank_images: MaskedImages, queries: MaskedImages
    ) -> tuple[Metric, ...]:
        classes, patch = len(queries.classes), network.backbone.patch_size
        most = max(1, _MOST_PATCHES // len(bank_images))
        parts = [
            bank_of(patches, class_shares(labels, patch, classes), most=most, image=image, seed=0)
            for image, patches, labels in self._read(network, bank_images)
        ]
        own = PatchBank.joined(parts, network.backbone.width, classes)
        bank = PatchBank(distributed.gather_rows(own.vectors), distributed.gather_rows(own.shares))
        segmented = Segmented(classes)
        side = self.image_size // patch
        is_usable = len(bank) > 0 and bool(bank.vectors.isfinite().all())
        for image, patches, labels in self._read(network, queries):
            if is_usable and bool(patches.isfinite().all()):
                votes = bank.votes(patches, k=_SETTINGS.k, temperature=_SETTINGS.temperature)
                scores = votes.T.unflatten(1, (side, side))
                predicted = best_classes(scores, (self.image_size, self.image_size))
                segmented.update(predicted, labels.long(), image)
        whole = segmented.of_all_processes()
        # A network that diverged is told of by other metrics, and may go back to a checkpoint.
        return whole.result(queries.classes.names, PREFIX).metrics[:1] if whole.image_iou else ()

    def _read(
        self, network: Lockstep, images: MaskedImages
    ) -> Iterator[tuple[int, Float[Tensor, "N D"], Int16[Tensor, "size size"]]]:
        """Number, patches and labels of each readable image of this process's share."""
        share = distributed.share_of(len(images))
        masks = SqueezedMasks(images, self.image_size)
        reader = ImageReader(images.source, Squeezed(self.image_size), self.data, masks)
        crops = reader.batches(share, batch_size=_AT_ONCE, workers=self.workers)
        image = share.start
        for batch in network.forward(crops, _SETTINGS.readout, reader.blank()):
            assert batch.targets is not None
            patches = batch.values.cpu().flatten(1, 2).flatten(2).transpose(1, 2)
            for place, is_readable in enumerate(batch.readable.tolist()):
                if is_readable:
                    yield image, patches[place], batch.targets[place]
                image += 1

    def _found(self, images: Images, most: int) -> tuple[MaskedImages, MaskedImages] | None:
        """Some images with masks for the bank and as queries, the same in all processes."""
        fault, pair = None, None
        try:
            pair = _some_with_masks(images, self.data, most)
        except UserError as raised:
            fault = raised
        which = None if pair is None else [(*part.files, *part.classes.values) for part in pair]
        if not distributed.all_agree(which == distributed.from_main(which)):
            fault = UserError("the processes do not find the same masks")
        if fault is not None:
            _tell(fault)
        return pair if fault is None else None


def _some_with_masks(
    images: Images, data: DataConfig, most: int
) -> tuple[MaskedImages, MaskedImages] | None:
    """The images of the bank and the queries, with the values of their own masks as classes."""
    folder = folder_with_masks(images.splits) if most > 1 else None
    if folder is None:
        return None
    Segmented(1)  # an error if its library is missing
    bank, queries = trained_on(images.train, data), images.held_out
    if queries is None:
        is_query = held_out(None, len(bank), _HOLDOUT)
        bank, queries = (bank.subset(np.flatnonzero(chosen)) for chosen in (~is_query, is_query))
    if not len(queries):
        return None
    in_bank = max(1, round(most * _SHARE_IN_BANK))
    some = {"train": _some(bank, in_bank), "held-out": _some(queries, most - in_bank)}
    found = match_masks(folder, some)
    (bank, bank_files), (queries, query_files) = (found.splits[name] for name in some)
    classes = (
        classes_of_trimaps(MasksConfig())
        if found.are_trimaps
        else _classes_in((*bank_files, *query_files))
    )
    return MaskedImages(bank, bank_files, classes), MaskedImages(queries, query_files, classes)


def _classes_in(files: tuple[Path, ...]) -> PixelClasses:
    """The values that occur; 255 is a class only where there would be but one without it."""
    try:
        config = MasksConfig()
        values = class_values(files, config)
    except UserError:
        config = MasksConfig(ignored=())
        values = class_values(files, config)
    return PixelClasses(tuple(map(str, values)), values, config.ignored)


def _some(source: Source, most: int) -> Source:
    return source.subset(spread_evenly(source.labels, len(source), most))


def _tell(fault: UserError) -> None:
    if distributed.is_main():
        log.warning("%s; segmentation is not evaluated in this run", fault)
