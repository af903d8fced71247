"""Annotated images through a detector: its detections, measured as COCO does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from attmask import distributed
from attmask.data.coco import Annotated, BoxedImages
from attmask.data.decode import UnreadableImageError, decode
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.features.forward import Autocast, Count, uncounted
from attmask.evaluation.features.images import read_in_order, say_unreadable
from attmask.evaluation.features.lockstep import agreed
from attmask.evaluation.metrics.detection import Detection, DetectionScores
from attmask.evaluation.reporting.objects import DetectedExample
from attmask.evaluation.showing import Showing


class Shown(NamedTuple):
    """An image as it is shown to the network, and its objects; None if it cannot be read."""

    image: int
    """Its place in the set."""
    pixels: UInt8[Tensor, "C h w"]
    truth: Annotated | None


@dataclass(frozen=True, eq=False)
class BoxedReader:
    """Reads annotated images, in worker processes or in this one."""

    images: BoxedImages
    showing: Showing

    def __call__(self, index: int) -> tuple[Tensor, ...]:
        """The image as it is shown, and its own height and width."""
        try:
            pixels = decode(self.images.source, index, self.showing.data)
        except UnreadableImageError:
            blank = torch.zeros(self.showing.data.channels, 1, 1, dtype=torch.uint8)
            return blank, torch.zeros(2, dtype=torch.int64)
        return self.showing(pixels), torch.tensor(pixels.shape[:2])

    def read(self, indices: Sequence[int], *, workers: int = 0) -> Iterator[Shown]:
        """Some of the images in order, one at a time, because sizes differ."""
        batches = read_in_order(self, indices, batch_size=1, workers=workers)
        for index, (pixels, size) in zip(indices, batches, strict=False):
            height, width = size[0].tolist()
            truth = self.images.annotated(int(index), (width, height)) if height else None
            if truth is not None:
                truth.rles()  # here, where processes share an error
            yield Shown(int(index), pixels[0], truth)


def detect_all(
    detector: TrainedDetector,
    images: BoxedImages,
    autocast: Autocast,
    *,
    workers: int = 0,
    stopped: Callable[[], bool] = lambda: False,
    count: Count = uncounted,
) -> Detection:
    """Detect objects in all images; each process does its share, and all get all measures."""
    masks = detector.has_masks and images.has_masks
    scores, unread = DetectionScores(detector.names, masks=masks), []
    share = distributed.share_of(len(images))
    own = BoxedReader(images, detector.showing).read(share, workers=workers)
    for shown in agreed(own, lambda _: 1, count, stopped):
        if shown is None:
            continue
        if shown.truth is None:
            unread.append(shown.image)
            continue
        width, height = shown.truth.size_wh
        found = detector.find(shown.pixels, (height, width), autocast)
        scores.update(shown.image, found, shown.truth)
    missing = sorted(index for part in distributed.gather(unread) for index in part)
    if missing:
        say_unreadable(images.source, missing, quiet=not distributed.is_main())
    return scores.result()


def examples(
    detector: TrainedDetector,
    images: BoxedImages,
    chosen: Sequence[tuple[int, float]],
    autocast: Autocast,
) -> list[DetectedExample]:
    """Some images, each with its F1, detected again to be shown to people."""
    shown = []
    for index, f1 in chosen:
        pixels = decode(images.source, index, detector.showing.data)
        height, width = pixels.shape[:2]
        found = detector.find(detector.showing(pixels), (height, width), autocast)
        truth = images.annotated(index, (width, height))
        shown.append(DetectedExample(images.source.name(index), pixels, truth, found, f1))
    return shown
