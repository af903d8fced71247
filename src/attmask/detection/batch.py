"""Batches of augmented images with their objects."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import Dataset

from attmask.data.batch import Request, note_reading, read_or_replace
from attmask.data.coco import BoxedImages
from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.detection.augment import DetectAugment
from attmask.errors import UserError
from attmask.models.detection.instances import Instances
from attmask.models.detection.padding import padded
from attmask.randomness import hashed


@dataclass(frozen=True, eq=False)
class DetectBatch:
    """Normalised images, padded at the right and at the bottom to a common size, and their objects.

    The sizes without padding are those of `targets`.
    """

    images: Float[Tensor, "B C H W"]
    targets: tuple[Instances, ...]
    samples: Int[Tensor, " B"]
    first_image: int
    """The place of the first image in the batch of all processes."""
    unreadable: tuple[str, ...] = ()

    def tensors(self) -> tuple[Tensor, ...]:
        """What a worker hands over in shared memory."""
        own = [tensor for each in self.targets for tensor in (each.boxes, each.labels, each.masks)]
        return self.images, self.samples, *own

    def pin_memory(self) -> "DetectBatch":
        """Copy the batch to page-locked memory; the DataLoader calls this if there is a GPU."""
        targets = (
            replace(
                each,
                boxes=each.boxes.pin_memory(),
                labels=each.labels.pin_memory(),
                masks=each.masks.pin_memory(),
            )
            for each in self.targets
        )
        return replace(self, images=self.images.pin_memory(), targets=tuple(targets))

    def part(self, places: slice) -> "DetectBatch":
        """Some images of the batch, for a micro-batch; their padding stays."""
        start = range(len(self.samples))[places].start
        return DetectBatch(
            self.images[places],
            self.targets[places],
            self.samples[places],
            self.first_image + start,
            self.unreadable,
        )

    def to(self, device: torch.device | str) -> "DetectBatch":
        """Images and objects on a device."""
        images = self.images.to(device, non_blocking=True)
        return replace(self, images=images, targets=tuple(each.to(device) for each in self.targets))


@dataclass(frozen=True)
class DetectBatchMaker(Dataset[DetectBatch | UserError]):
    """Makes the requested batch, in a worker process or in this one."""

    images: BoxedImages
    data: DataConfig
    augment: DetectAugment
    patch_size: int
    seed: int
    reading: Int[Tensor, "workers 2"]
    first_image: int

    def __getitem__(self, request: Request) -> DetectBatch | UserError:
        # An error is handed over, not raised: a DataLoader would wrap it in a worker's traceback.
        try:
            return self._make(request)
        except UserError as error:
            return error

    def _make(self, request: Request) -> DetectBatch:
        images, targets, shown, unreadable = [], [], [], []
        places = self.first_image + np.arange(len(request.samples))
        numbers = hashed("augmentation", self.seed, request.epoch, request.step, places)
        for sample, number in zip(request.samples, numbers.tolist(), strict=True):
            index, pixels, faults = read_or_replace(
                self.images.source, sample, self.seed, self._read
            )
            height, width = pixels.shape[:2]
            objects = self.images.annotated(index, (width, height))
            image, truth = self.augment(pixels, objects, number)
            images.append(image)
            targets.append(truth)
            shown.append(index)
            unreadable += faults
        return DetectBatch(
            padded(images, self.patch_size),
            tuple(targets),
            torch.tensor(shown),
            self.first_image,
            tuple(unreadable),
        )

    def _read(self, index: int) -> np.ndarray:
        note_reading(self.reading, index)
        return decode(self.images.source, index, self.data)
