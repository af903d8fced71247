"""Make one batch: open pictures, draw their views, crop and recolour them."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from attmask.data.colours import Look, recolour
from attmask.data.config import DataConfig
from attmask.data.cut import best_shrink, cut
from attmask.data.decode import UnreadableImageError, open_picture, replacement
from attmask.data.device import recolour_batch
from attmask.data.draws import ViewParameters, draw
from attmask.data.source import Source
from attmask.data.views import GLOBAL_VIEWS, Views, ViewsConfig
from attmask.errors import UserError

_TRIES = 16

Read = TypeVar("Read")


@dataclass(frozen=True)
class Batch:
    """The views of a batch, the indices of their images, and a line for each unreadable picture.

    A picture that cannot be read is replaced by another: `samples` names the one that is shown.
    `looks` are the colours that the device is still to make, view after view; () where the
    workers made them.
    """

    views: Views
    samples: Int[Tensor, " B"]
    looks: tuple[tuple[Look, ...], ...] = ()
    unreadable: tuple[str, ...] = ()

    def pin_memory(self) -> "Batch":
        """Copy the batch to page-locked memory; the DataLoader calls this if there is a GPU."""
        return Batch(self.views.pin_memory(), self.samples, self.looks, self.unreadable)

    def tensors(self) -> tuple[Tensor, ...]:
        """What a worker hands over in shared memory."""
        return self.views.globals, self.views.locals, self.samples

    def on(self, device: torch.device) -> Views:
        """The views on a device, in their new colours."""
        views = self.views.to(device)
        if not self.looks:
            return views
        return replace(
            views,
            globals=_recoloured(views.globals, self.looks[:GLOBAL_VIEWS]),
            locals=_recoloured(views.locals, self.looks[GLOBAL_VIEWS:]),
        )


def _recoloured(views: Tensor, looks: tuple[tuple[Look, ...], ...]) -> Tensor:
    if not looks:
        return views
    images = views.flatten(0, 1)
    return recolour_batch(images, [look for view in looks for look in view]).view_as(views)


@dataclass(frozen=True)
class Request:
    """The request for one batch, sent to a worker."""

    epoch: int
    samples: tuple[int, ...]
    step: int = 0
    """Within the epoch."""


@dataclass(frozen=True)
class BatchMaker(Dataset[Batch | UserError]):
    """Makes the requested batch, in a worker process or in this one."""

    source: Source
    data: DataConfig
    config: ViewsConfig
    seed: int
    reading: Int[Tensor, "workers 2"]  # shared: the process and the picture each worker is at
    first_image: int = 0  # of this process, in the batch of all processes

    def __getitem__(self, request: Request) -> Batch | UserError:
        # An error is handed over, not raised: a DataLoader would wrap it in a worker's traceback.
        try:
            return self._make(request)
        except UserError as error:
            return error

    def _make(self, request: Request) -> Batch:
        config, images, channels = self.config, len(request.samples), self.data.channels
        globals_, locals_ = (
            torch.empty(views, images, channels, side, side, dtype=torch.uint8)
            for views, side in (
                (GLOBAL_VIEWS, config.global_size),
                (config.local_crops, config.local_size),
            )
        )
        rows = [*globals_.numpy(), *locals_.numpy()]
        shown, looks, unreadable = [], [], []
        for place, sample in enumerate(request.samples):
            index, parameters, crops, faults = self._cut(request.epoch, sample)
            shown.append(index)
            unreadable += faults
            looks.append([view.look for view in parameters])
            for row, crop, view in zip(rows, crops, parameters, strict=True):
                pixels = crop if config.colours_on == "device" else recolour(crop, view.look)
                row[place] = (pixels[:, ::-1] if view.flip else pixels).transpose(2, 0, 1)
        later = tuple(zip(*looks, strict=True)) if config.colours_on == "device" else ()
        views = Views(globals_, locals_, self.first_image)
        return Batch(views, torch.tensor(shown), later, tuple(unreadable))

    def _cut(
        self, epoch: int, sample: int
    ) -> tuple[int, list[ViewParameters], list[np.ndarray], list[str]]:
        """All crops of an image or of its replacement, its index, and the unreadable pictures."""

        def read(index: int) -> tuple[list[ViewParameters], list[np.ndarray]]:
            note_reading(self.reading, index)
            picture = open_picture(self.source, index, self.data)
            # By the sample asked for, not the one shown: a replacement that is also in the
            # batch by itself gets other views.
            views = [
                draw(
                    self.config,
                    picture.size_wh,
                    seed=self.seed,
                    epoch=epoch,
                    sample=sample,
                    view=view,
                )
                for view in range(self.config.count)
            ]
            pixels = picture.pixels(best_shrink(views, picture.shrinks))
            pixels = np.require(pixels, requirements="W")  # torch takes no others
            return views, [cut(pixels, picture.size_wh, view) for view in views]

        index, (views, crops), faults = read_or_replace(self.source, sample, self.seed, read)
        return index, views, crops, faults


def read_or_replace(
    source: Source, sample: int, seed: int, read: Callable[[int], Read]
) -> tuple[int, Read, list[str]]:
    """The index of an image or of its replacement, what `read` makes of it, and the unreadable
    pictures before it."""
    faults: list[str] = []
    for attempt in range(_TRIES):
        index = replacement(sample, attempt - 1, len(source), seed) if attempt else sample
        try:
            return index, read(index), faults
        except UnreadableImageError as fault:
            faults.append(fault.line)
    first = faults[0].replace("\t", ": ")
    raise UserError(
        f"{len(faults)} images in a row could not be read, the first {first}; "
        "repair the files, or replace them under the same names"
    )


def note_reading(reading: Int[Tensor, "workers 2"], index: int) -> None:
    """Record which picture is read, so that an error can name it if this process dies."""
    worker = get_worker_info()
    if worker is not None:
        reading[worker.id, 0] = os.getpid()
        reading[worker.id, 1] = index
