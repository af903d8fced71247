"""The order of images in an epoch, drawn from counters, so that every rank computes the same.

An order is computed step by step where it can be, because a table of a billion numbers would take
8 GB in every process.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from attmask.data.permutation import Permutation
from attmask.data.source import LARGE, Source
from attmask.data.stores.columns import pieces
from attmask.randomness import uniform

ROWS_A_SHARD = 1000  # where pictures are single files
WINDOW = 256  # images of a lane that are shuffled among themselves


@dataclass(frozen=True)
class Batches:
    """The images of each step of an epoch, computed when a step is asked for."""

    steps: int
    batch_size: int
    whole: Callable[[int], Int64[np.ndarray, " batch"]]
    """The whole batch of a step."""
    share: slice = field(default_factory=lambda: slice(None))
    """The places of a batch that are wanted."""

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Int64[Tensor, " share"]:
        return torch.from_numpy(self.whole(range(self.steps)[step])[self.share].copy())

    def __iter__(self) -> Iterator[Int64[Tensor, " share"]]:
        return (self[step] for step in range(self.steps))

    def table(self) -> Int64[Tensor, "steps share"]:
        """All of them at once."""
        places = len(range(self.batch_size)[self.share])
        return torch.cat([torch.empty(0, dtype=torch.int64), *self]).view(self.steps, places)


def shuffled(images: int, *, batch_size: int, seed: int, epoch: int) -> Batches:
    """All images in random order; those that do not fill a batch are dropped, others each epoch.

    More than `LARGE` images are put in order by a permutation without a table.
    """
    steps = images // batch_size
    if images > LARGE:
        order = Permutation("order of many images", (seed, epoch), images)
        places = np.arange(batch_size)
        return Batches(steps, batch_size, lambda step: order(step * batch_size + places))
    numbers = np.empty(images)
    for piece in pieces(images):
        counters = np.arange(piece.start, piece.stop)
        numbers[piece] = uniform("order of images", seed, epoch, counters)
    table = numbers.argsort(kind="stable").astype(np.int32)  # half of int64
    batches = table[: steps * batch_size].reshape(steps, batch_size)
    return Batches(steps, batch_size, lambda step: batches[step].astype(np.int64))


def sequential(source: Source, *, batch_size: int, seed: int, epoch: int) -> Batches:
    """Shards in a new order, laid end to end and cut into one lane for each place of a batch.

    A lane is read front to back but for shuffling within a window, so that a disk is read in long
    stretches; a batch takes one image of every lane, so it comes from all over the data. Lanes
    belong to places, not to ranks or workers, and so the order does not depend on these. What
    fills no batch is left out, others each epoch.
    """
    images, steps = len(source), len(source) // batch_size
    line = _Line(source, seed=seed, epoch=epoch)
    begin = int(uniform("where an epoch begins", seed, epoch) * images)
    lanes = np.arange(batch_size)[:, None]
    window = -1, np.empty((batch_size, 0), dtype=np.int64)  # its number, and its batches

    def whole(step: int) -> Int64[np.ndarray, " batch"]:
        nonlocal window
        number, place = divmod(step, WINDOW)
        if number != window[0]:
            inside = np.arange(number * WINDOW, min((number + 1) * WINDOW, steps))
            within = number + uniform("order within windows", seed, epoch, lanes, inside)
            mixed = inside[within.argsort(axis=1, kind="stable")]
            window = number, line((begin + lanes * steps + mixed) % images)
        return window[1][:, place]

    return Batches(steps, batch_size, whole)


class _Line:
    """All images of a source in a line: shard after shard in a drawn order, each front to back."""

    def __init__(self, source: Source, *, seed: int, epoch: int) -> None:
        rows = source.rows
        self._sorted: Int64[np.ndarray, " M"] | None = None
        if isinstance(rows, range) and (rows.start, rows.step) != (0, 1):
            rows = np.asarray(rows, dtype=np.int64)
        if not isinstance(rows, range) and not _ascends(rows):
            self._sorted = np.argsort(rows, kind="stable")
            rows = rows[self._sorted]
        last = int(rows[-1]) if len(rows) else 0
        begins = np.asarray(source.store.shards, dtype=np.int64)
        # One shard has no order to draw: a single large file is cut as loose files are.
        if len(begins) < 2:
            begins = np.arange(0, last + 1, ROWS_A_SHARD)
        begins = begins[begins <= last]  # shards after the last image have no part in the draw
        starts = begins if isinstance(rows, range) else np.searchsorted(rows, begins)
        sizes = np.diff(starts, append=len(rows))
        order = uniform("order of shards", seed, epoch, np.arange(len(begins))).argsort()
        self._starts, self._ends = starts[order], sizes[order].cumsum()
        self._lengths = sizes[order]

    def __call__(self, places: Int64[np.ndarray, "..."]) -> Int64[np.ndarray, "..."]:
        """The images at these places of the line."""
        shard = np.searchsorted(self._ends, places, side="right")
        images = self._starts[shard] + places - (self._ends[shard] - self._lengths[shard])
        return np.asarray(images if self._sorted is None else self._sorted[images])


def _ascends(rows: Int64[np.ndarray, " M"]) -> bool:
    parts = pieces(len(rows) - 1)
    return all((rows[p] <= rows[p.start + 1 : p.stop + 1]).all() for p in parts)
