"""Images with masks through a segmenter: pixels counted by true and predicted class."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Int16, UInt8
from torch import Tensor

from attmask import distributed
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.masks import IGNORED, MaskedImages
from attmask.evaluation.features.forward import Autocast, Count, uncounted
from attmask.evaluation.features.images import read_in_order, say_unreadable
from attmask.evaluation.features.lockstep import agreed
from attmask.evaluation.metrics.segmentation import Segmented
from attmask.evaluation.reporting.masks import SegmentedExample
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.evaluation.showing import Showing


class Shown(NamedTuple):
    """An image as it is shown to the network, and its truth at its own size."""

    image: int
    """Its place in the set."""
    pixels: UInt8[Tensor, "C h w"]
    truth: Int16[Tensor, "H W"]
    """All without a class if the image cannot be read."""
    readable: bool


@dataclass(frozen=True, eq=False)
class MaskedReader:
    """Reads images with their masks, in worker processes or in this one."""

    images: MaskedImages
    showing: Showing

    def __call__(self, index: int) -> tuple[Tensor, ...]:
        """Image, truth and whether they could be read."""
        try:
            pixels = decode(self.images.source, index, self.showing.data)
        except UnreadableImageError:
            blank = torch.zeros(self.showing.data.channels, 1, 1, dtype=torch.uint8)
            return blank, torch.full((1, 1), IGNORED, dtype=torch.int16), torch.tensor(False)
        truth = self.images.read(index, (pixels.shape[1], pixels.shape[0]))
        return self.showing(pixels), torch.from_numpy(truth), torch.tensor(True)

    def read(self, indices: Sequence[int], *, workers: int = 0) -> Iterator[Shown]:
        """Some of the images in order, one at a time, because sizes differ."""
        batches = read_in_order(self, indices, batch_size=1, workers=workers)
        for index, (pixels, truth, readable) in zip(indices, batches, strict=False):
            yield Shown(int(index), pixels[0], truth[0], bool(readable[0]))


def count_pixels(
    segmenter: TrainedSegmenter,
    images: MaskedImages,
    autocast: Autocast,
    *,
    workers: int = 0,
    stopped: Callable[[], bool] = lambda: False,
    count: Count = uncounted,
) -> Segmented:
    """Segment all images; each process of a group does its share, and all get all counts."""
    found, unread = Segmented(len(segmenter.names)), []
    share = distributed.share_of(len(images))
    own = MaskedReader(images, segmenter.showing).read(share, workers=workers)
    for shown in agreed(own, lambda _: 1, count, stopped):
        if shown is None:
            continue
        if not shown.readable:
            unread.append(shown.image)
            continue
        height, width = shown.truth.shape
        labels = segmenter.labels(shown.pixels, (height, width), autocast)
        found.update(labels, shown.truth.long(), shown.image)
    missing = sorted(index for part in distributed.gather(unread) for index in part)
    if missing:
        say_unreadable(images.source, missing, quiet=not distributed.is_main())
    return found.of_all_processes()


def examples(
    segmenter: TrainedSegmenter,
    images: MaskedImages,
    chosen: Sequence[tuple[int, float]],
    autocast: Autocast,
) -> list[SegmentedExample]:
    """Some images, each with its IoU, segmented again to be shown to people."""
    found = []
    for index, iou in chosen:
        pixels = decode(images.source, index, segmenter.showing.data)
        height, width = pixels.shape[:2]
        labels = segmenter.labels(segmenter.showing(pixels), (height, width), autocast)
        truth = images.read(index, (width, height))
        found.append(
            SegmentedExample(images.source.name(index), pixels, truth, labels.numpy(), iou)
        )
    return found
