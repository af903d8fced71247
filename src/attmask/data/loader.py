"""Batches of views in an order that does not depend on the number of workers and ranks."""

import atexit
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader, Sampler

from attmask.data.batch import Batch, BatchMaker, Request
from attmask.data.config import DataConfig
from attmask.data.order import Batches, sequential, shuffled
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.views import ViewsConfig
from attmask.data.workers import Feed, start_worker, to_shared_memory
from attmask.errors import UserError
from attmask.wording import agree, counted


@dataclass
class _Requests(Sampler[Request]):
    """Endless requests, epoch after epoch, so that workers are never idle between epochs.

    It must not refer to its loader: in a circle of references Python would close the queues to
    the workers before it tells them to end.
    """

    source: Source
    order: Literal["shuffled", "sequential"]
    batch_size: int
    seed: int
    share: slice
    start: tuple[int, int] = (0, 0)

    def batches(self, epoch: int) -> Batches:
        """The images of this rank in each step of an epoch."""
        size, seed = self.batch_size, self.seed
        if self.order == "sequential":
            whole = sequential(self.source, batch_size=size, seed=seed, epoch=epoch)
        else:
            whole = shuffled(len(self.source), batch_size=size, seed=seed, epoch=epoch)
        return replace(whole, share=self.share)

    def __iter__(self) -> Iterator[Request]:
        epoch, first = self.start
        while True:
            batches = self.batches(epoch)
            for step in range(first, len(batches)):
                yield Request(epoch, tuple(batches[step].tolist()))
            epoch, first = epoch + 1, 0


class Loader:
    """Loads batches of views of a source, epoch after epoch.

    `batch_size` counts the images of all ranks together; each rank makes its own contiguous share
    of every batch. `waited_seconds` is the time that the caller has waited for batches.
    """

    def __init__(
        self,
        source: Source,
        data: DataConfig,
        config: ViewsConfig,
        *,
        batch_size: int,
        seed: int,
        workers: int,
        quarantine: Quarantine | None = None,
        prefetch: int = 2,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        if len(source) < batch_size:
            few = f"{counted(len(source), 'image')} {agree(len(source), 'is', 'are')}"
            raise UserError(
                f"{few} fewer than one batch of {batch_size}; "
                f"use train.batch_size={len(source)} or less, or more images"
            )
        if batch_size < 1 or batch_size % world:
            raise UserError(
                f"a batch of {batch_size} images cannot be shared by {world} processes; "
                f"use a multiple of {world}"
            )
        self.steps_per_epoch = len(source) // batch_size
        self.waited_seconds = 0.0
        self.quarantine = quarantine or Quarantine(None, len(source), data.unreadable_limit)
        self._source = source
        share = batch_size // world
        ours = slice(rank * share, (rank + 1) * share)
        self._reading = torch.full((max(1, workers), 2), -1).share_memory_()
        self._requests = _Requests(source, data.order, batch_size, seed, ours)
        self._feed: Feed[Batch | UserError] | None = None
        self._next = (0, 0)
        self._maker = BatchMaker(source, data, config, seed, self._reading, ours.start)
        self._workers, self._prefetch = workers, prefetch
        _OPEN.add(self)

    def _start(self) -> Feed[Batch | UserError]:
        workers = self._workers
        loader = DataLoader(
            self._maker,
            batch_size=None,
            sampler=self._requests,
            num_workers=workers,
            collate_fn=_in_shared_memory,
            worker_init_fn=start_worker,
            persistent_workers=workers > 0,
            prefetch_factor=self._prefetch if workers > 0 else None,
            pin_memory=torch.cuda.is_available(),
            # Its own, because a DataLoader draws a number when it starts: the caller's generator
            # must not depend on how often data was read.
            generator=torch.Generator(),
        )
        return Feed(loader, workers="train.workers", place=self._read_by)

    def close(self) -> None:
        """End the workers; another epoch starts new ones."""
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()

    def order(self, epoch: int) -> Batches:
        """The images of this rank in each step of an epoch."""
        return self._requests.batches(epoch)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start_step` on; earlier ones are not read.

        One epoch is read at a time. Where the last one was read to its end, the batches of the
        next are being made already.
        """
        if not 0 <= start_step <= self.steps_per_epoch:
            raise ValueError(f"step {start_step} is not in an epoch of {self.steps_per_epoch}")
        return self._batches(epoch, start_step)

    def _batches(self, epoch: int, start_step: int) -> Iterator[Batch]:
        for step in range(start_step, self.steps_per_epoch):
            began = time.perf_counter()
            made = self._take((epoch, step))
            self.waited_seconds += time.perf_counter() - began
            self.quarantine.add(made.unreadable)
            yield made

    def _take(self, at: tuple[int, int]) -> Batch:
        """The batch of an epoch and a step; any but the next one restarts the workers there."""
        try:
            if self._feed is None or at != self._next:
                self._requests.start = at
                if self._feed is None:
                    self._feed = self._start()
                self._feed.restart()
            epoch, step = at
            last = step + 1 == self.steps_per_epoch
            self._next = (epoch + 1, 0) if last else (epoch, step + 1)
            made = self._feed.take()
        except UserError:
            self.close()
            raise
        if isinstance(made, UserError):
            self.close()
            raise made
        return made

    def _read_by(self, process: int) -> str | None:
        """The picture that a worker process read last."""
        read = [int(index) for pid, index in self._reading.tolist() if pid == process]
        return self._source.place(read[0]) if read else None


_OPEN: WeakSet[Loader] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End the workers at exit: they ignore SIGTERM, so Python would wait for them for ever."""
    for loader in _OPEN:
        loader.close()


def _in_shared_memory(made: Any) -> Batch | UserError:
    """Move what a worker made to shared memory."""
    if not isinstance(made, Batch):
        assert isinstance(made, UserError)
        return made
    return to_shared_memory([made.views.globals, made.views.locals, made.samples]) or made
