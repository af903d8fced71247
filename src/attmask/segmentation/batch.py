"""Batches of augmented images with the class of each pixel."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int, Int16, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from attmask.data.batch import Request, note_reading, read_or_replace
from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.masks import MaskedImages
from attmask.errors import UserError
from attmask.randomness import hashed
from attmask.segmentation.augment import SegmentAugment


@dataclass(frozen=True)
class SegmentBatch:
    """Normalised images and the class of each pixel, below 0 where there is none."""

    images: Float[Tensor, "B C H W"]
    targets: Int[Tensor, "B H W"]
    samples: Int[Tensor, " B"]
    first_image: int
    """The place of the first image in the batch of all processes."""
    unreadable: tuple[str, ...] = ()

    def tensors(self) -> tuple[Tensor, ...]:
        """What a worker hands over in shared memory."""
        return self.images, self.targets, self.samples

    def pin_memory(self) -> "SegmentBatch":
        """Copy the batch to page-locked memory; the DataLoader calls this if there is a GPU."""
        return replace(self, images=self.images.pin_memory(), targets=self.targets.pin_memory())

    def part(self, places: slice) -> "SegmentBatch":
        """The images at these places, in order: a micro-batch."""
        first, _, step = places.indices(len(self.samples))
        if step != 1:
            raise ValueError("a part of a batch is of consecutive images")
        return replace(
            self,
            images=self.images[places],
            targets=self.targets[places],
            samples=self.samples[places],
            first_image=self.first_image + first,
        )

    def to(self, device: torch.device) -> "SegmentBatch":
        """The batch on a device, where classes become the 64-bit numbers that losses want."""
        images = self.images.to(device, non_blocking=True)
        # They travel in 16 bits, a quarter of the bytes.
        targets = self.targets.to(device, non_blocking=True).long()
        return replace(self, images=images, targets=targets)


@dataclass(frozen=True)
class SegmentBatchMaker(Dataset[SegmentBatch | UserError]):
    """Makes the requested batch, in a worker process or in this one.

    An image that cannot be read is replaced by another. A mask that cannot be read, or does not
    fit its image or the classes, is an error.
    """

    masked: MaskedImages
    data: DataConfig
    augment: SegmentAugment
    seed: int
    reading: Int[Tensor, "workers 2"]
    first_image: int

    def __getitem__(self, request: Request) -> SegmentBatch | UserError:
        try:
            return self._make(request)
        except UserError as error:
            return error

    def _make(self, request: Request) -> SegmentBatch:
        images, targets, shown, unreadable = [], [], [], []
        places = self.first_image + np.arange(len(request.samples))
        numbers = hashed("augmentation", self.seed, request.epoch, request.step, places)
        for sample, number in zip(request.samples, numbers.tolist(), strict=True):
            index, (pixels, labels), faults = read_or_replace(
                self.masked.source, sample, self.seed, self._read
            )
            image, target = self.augment(pixels, labels, number)
            images.append(image)
            targets.append(target)
            shown.append(index)
            unreadable += faults
        return SegmentBatch(
            torch.stack(images),
            torch.stack(targets),
            torch.tensor(shown),
            self.first_image,
            tuple(unreadable),
        )

    def _read(self, index: int) -> tuple[UInt8[np.ndarray, "H W C"], Int16[np.ndarray, "H W"]]:
        note_reading(self.reading, index)
        pixels = decode(self.masked.source, index, self.data)
        return pixels, self.masked.read(index, (pixels.shape[1], pixels.shape[0]))
