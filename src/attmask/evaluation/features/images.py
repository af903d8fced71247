"""Read the images of a source as batches of crops, in order, with any number of workers."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attmask import distributed
from attmask.agreement import together
from attmask.data.config import DataConfig
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.source import Source
from attmask.data.workers import Feed, start_worker, to_shared_memory
from attmask.errors import UserError
from attmask.evaluation.features.crops import Crop

log = logging.getLogger(__name__)

Target = Callable[[UInt8[np.ndarray, "H W C"] | None, int], Tensor]
"""A function from pixels (None if unreadable) and index to a target, such as the mask in the same
crop. Worker processes call it."""
_BLACK = 32  # side in pixels of the black image that replaces an unreadable one


class Crops(NamedTuple):
    """A batch of crops; those of unreadable images are black."""

    pixels: UInt8[Tensor, "B C height width"]
    readable: Bool[Tensor, "B"]
    targets: Tensor | None = None


@dataclass(frozen=True, eq=False)
class ImageReader:
    """Reads images of a source as crops."""

    source: Source
    crop: Crop
    data: DataConfig
    target: Target | None = None

    def __call__(self, index: int) -> tuple[Tensor, ...]:
        """The crop, whether the image is readable, and the target if there is one."""
        try:
            pixels = decode(self.source, index, self.data)
        except UnreadableImageError:
            pixels = None
        return self._shown(pixels, index)

    def blank(self) -> Crops:
        """A batch of one image that cannot be read."""
        return Crops(*(part[None] for part in self._shown(None, 0)))

    def _shown(self, pixels: UInt8[np.ndarray, "H W C"] | None, index: int) -> tuple[Tensor, ...]:
        black = np.zeros((_BLACK, _BLACK, self.data.channels), dtype=np.uint8)
        crop = self.crop(black if pixels is None else pixels, index)
        target = () if self.target is None else (self.target(pixels, index),)
        return crop, torch.tensor(pixels is not None), *target

    def batches(
        self, indices: Sequence[int], *, batch_size: int, workers: int = 0
    ) -> Iterator[Crops]:
        """Yield the crops of some images in order; one per batch if their sizes differ."""
        size = 1 if self.crop.size_hw is None else batch_size
        for batch in read_in_order(self, indices, batch_size=size, workers=workers):
            yield Crops(*batch)


class CachedCrops:
    """The crops of a source, read once and kept in memory as 8-bit pixels.

    Unreadable images are left out. If they are `shared`, all processes of a group make this object
    together: each reads and keeps the pixels of its share, and all know indices and labels of all.
    """

    def __init__(
        self,
        source: Source,
        crop: Crop,
        data: DataConfig,
        *,
        indices: Sequence[int] | None = None,
        shared: bool = False,
        workers: int = 0,
        count: Callable[[int], None] = lambda _: None,
    ) -> None:
        asked = list(range(len(source)) if indices is None else indices)
        if not asked:
            raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")
        if crop.size_hw is None:
            raise ValueError("crops of different sizes do not fit into one tensor")
        self.source, self.classes = source, source.classes
        self.reader = ImageReader(source, crop, data)
        share = distributed.share_of(len(asked)) if shared else range(len(asked))
        with together() if shared else nullcontext():
            pixels, read = self._read([asked[i] for i in share], len(asked), workers, count)
        everywhere = distributed.gather_rows(read.byte()).bool() if shared else read
        readable = everywhere.tolist()
        self.pixels: UInt8[Tensor, "m C H W"] = pixels if read.all() else pixels[read]
        self.indices = [i for i, good in zip(asked, readable, strict=True) if good]
        if unread := [i for i, good in zip(asked, readable, strict=True) if not good]:
            quiet = shared and not distributed.is_main()
            say_unreadable(source, unread, asked=len(asked), quiet=quiet)
        self.labels = labels_of(source, self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    def batches(self, batch_size: int) -> Iterator[Crops]:
        """The crops that this process keeps, in order."""
        for pixels in self.pixels.split(batch_size):
            if len(pixels):
                yield Crops(pixels, torch.ones(len(pixels), dtype=torch.bool))

    def _read(
        self, own: list[int], asked: int, workers: int, count: Callable[[int], None]
    ) -> tuple[UInt8[Tensor, "m C H W"], Bool[Tensor, "m"]]:
        """The crops of some of the images asked for, and which of them are readable."""
        size_hw = self.reader.crop.size_hw
        assert size_hw is not None
        pixels = torch.empty((len(own), self.reader.data.channels, *size_hw), dtype=torch.uint8)
        readable = torch.empty(len(own), dtype=torch.bool)
        done = 0
        for batch in self.reader.batches(own, batch_size=256, workers=workers):
            # In place: concatenating a list would double the memory.
            before, done = done, done + len(batch.pixels)
            pixels[before:done], readable[before:done] = batch.pixels, batch.readable
            # The other processes read as many in the same time.
            count(asked * done // len(own) - asked * before // len(own))
        return pixels, readable


def labels_of(source: Source, indices: Sequence[int]) -> Int[Tensor, "M"] | None:
    """The labels of some images, if the source has labels."""
    if source.labels is None:
        return None
    return torch.tensor([int(source.labels[i]) for i in indices], dtype=torch.int64)


def say_unreadable(
    source: Source,
    unread: Sequence[int],
    *,
    asked: int | None = None,
    quiet: bool = False,
    doing: str = "evaluation",
) -> None:
    """Warn of unreadable images, or raise an error if none of those asked for is readable."""
    told = f"{len(unread)} of {len(source)} images of {source.root} cannot be read"
    told = f"{told}, the first is {source.place(int(unread[0]))}"
    if len(unread) == (len(source) if asked is None else asked):
        raise UserError(f"{told}; check that these files are images")
    if not quiet:
        log.warning("%s; they are left out of the %s", told, doing)


def read_in_order(
    read: Callable[[int], tuple[Tensor, ...]],
    indices: Sequence[int],
    *,
    batch_size: int,
    workers: int = 0,
) -> Iterator[tuple[Tensor, ...]]:
    """Yield batches of `read(index)` in order, with any number of worker processes."""
    loader = DataLoader(
        _InOrder(read, indices),
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=_stack,
        worker_init_fn=start_worker,
        # Its own generator: an evaluation must not change the random state of the training.
        generator=torch.Generator(),
    )
    feed = Feed(loader, workers="workers")
    try:
        feed.restart()
        while True:
            try:
                batch = feed.take()
            except StopIteration:
                return
            if isinstance(batch, UserError):
                raise batch
            yield batch
    finally:
        feed.close()


class _InOrder(Dataset[tuple[Tensor, ...] | UserError]):
    """`read(index)` for each index; errors are returned, because an error raised in a worker
    process would reach the user as a long traceback."""

    def __init__(self, read: Callable[[int], tuple[Tensor, ...]], indices: Sequence[int]) -> None:
        self.read, self.indices = read, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> tuple[Tensor, ...] | UserError:
        try:
            return self.read(self.indices[position])
        except UserError as error:
            return error


def _stack(items: list[tuple[Tensor, ...] | UserError]) -> tuple[Tensor, ...] | UserError:
    read: list[tuple[Tensor, ...]] = []
    for item in items:
        if isinstance(item, UserError):
            return item
        read.append(item)
    batch = tuple(torch.stack(column) for column in zip(*read, strict=True))
    return to_shared_memory(batch) or batch
