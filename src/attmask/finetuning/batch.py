"""Batches of augmented images with their classes."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Int64
from timm.data.distributed_sampler import RepeatAugSampler
from torch import Tensor
from torch.utils.data import Dataset

from attmask.data.batch import Request, note_reading, read_or_replace
from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.feeding import Steps
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.finetuning.augment import Augment
from attmask.finetuning.labels import Classes
from attmask.randomness import hashed

Draw = Int64[np.ndarray, " N"]


@dataclass(frozen=True)
class LabelledBatch:
    """Normalised images and their classes; with several labels an image, a row of 0 and 1."""

    images: Float[Tensor, "B C height width"]
    labels: Int[Tensor, " B"] | Float[Tensor, "B classes"]
    samples: Int[Tensor, " B"]
    first_image: int
    """The place of the first image in the batch of all processes."""
    unreadable: tuple[str, ...] = ()

    def tensors(self) -> tuple[Tensor, ...]:
        """What a worker hands over in shared memory."""
        return self.images, self.labels, self.samples

    def pin_memory(self) -> "LabelledBatch":
        """Copy the batch to page-locked memory; the DataLoader calls this if there is a GPU."""
        images, labels = self.images.pin_memory(), self.labels.pin_memory()
        return LabelledBatch(images, labels, self.samples, self.first_image, self.unreadable)


@dataclass(frozen=True)
class LabelledBatchMaker(Dataset[LabelledBatch | UserError]):
    """Makes the requested batch, in a worker process or in this one."""

    source: Source
    classes: Classes
    data: DataConfig
    augment: Augment
    seed: int
    reading: Int[Tensor, "workers 2"]
    first_image: int

    def __getitem__(self, request: Request) -> LabelledBatch | UserError:
        try:
            return self._make(request)
        except UserError as error:
            return error

    def _make(self, request: Request) -> LabelledBatch:
        images, shown, unreadable = [], [], []
        # By place, not by image: with repeated augmentation an image occurs several times.
        places = self.first_image + np.arange(len(request.samples))
        numbers = hashed("augmentation", self.seed, request.epoch, request.step, places)
        for sample, number in zip(request.samples, numbers.tolist(), strict=True):
            index, pixels, faults = read_or_replace(self.source, sample, self.seed, self._read)
            images.append(self.augment(pixels, number))
            shown.append(index)
            unreadable += faults
        assert self.source.labels is not None
        labels = torch.from_numpy(self.classes.of(np.asarray(self.source.labels[shown])))
        return LabelledBatch(
            torch.stack(images), labels, torch.tensor(shown), self.first_image, tuple(unreadable)
        )

    def _read(self, index: int) -> np.ndarray:
        note_reading(self.reading, index)
        return decode(self.source, index, self.data)


@dataclass(frozen=True)
class RepeatedOrder:
    """timm's order of repeated augmentation: copies of an image go to different processes."""

    images: int
    repeats: int
    share: int
    """The images of this process in a step."""
    seed: int
    rank: int
    world: int

    @property
    def steps(self) -> int:
        """The steps of an epoch, without an incomplete one."""
        return len(self._sampler()) // self.share

    def __call__(self, epoch: int) -> Steps:
        """The images of this process in each step of an epoch."""
        sampler = self._sampler()
        # It shuffles by its number of the epoch alone, so the seed goes into that.
        sampler.set_epoch(int(hashed("repeated augmentation", self.seed, epoch) >> np.uint64(2)))
        drawn = torch.tensor(list(sampler))[: self.steps * self.share]
        return list(drawn.split(self.share))

    def _sampler(self) -> RepeatAugSampler:
        return RepeatAugSampler(range(self.images), self.world, self.rank, num_repeats=self.repeats)
