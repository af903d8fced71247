"""Batches made by worker processes, one after the other, epoch after epoch."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int64
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from attmask.data.batch import Request
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.workers import Feed, start_worker, to_shared_memory
from attmask.errors import UserError


@runtime_checkable
class AnyBatch(Protocol):
    """What a worker makes of a request."""

    @property
    def samples(self) -> Int64[Tensor, " B"]:
        """The images that are shown."""

    @property
    def unreadable(self) -> tuple[str, ...]:
        """A line for each unreadable picture that was met."""

    def tensors(self) -> Sequence[Tensor]:
        """Everything that a worker hands over in shared memory."""


Made = TypeVar("Made", bound=AnyBatch)


@runtime_checkable
class Steps(Protocol):
    """The images of this process in each step of an epoch."""

    def __len__(self) -> int: ...

    def __getitem__(self, step: int, /) -> Int64[Tensor, " share"]: ...


Order = Callable[[int], Steps]
"""The steps of an epoch."""


@dataclass
class _Requests(Sampler[Request]):
    """Endless requests, epoch after epoch, so that workers are never idle between epochs.

    It must not refer to its BatchLoader, which would then live as long as its workers do.
    """

    order: Order
    start: tuple[int, int] = (0, 0)

    def __iter__(self) -> Iterator[Request]:
        epoch, first = self.start
        while True:
            batches = self.order(epoch)
            for step in range(first, len(batches)):
                yield Request(epoch, tuple(batches[step].tolist()), step)
            epoch, first = epoch + 1, 0


class BatchLoader(Generic[Made]):
    """Loads batches of a source, epoch after epoch, in an order that no number of workers changes.

    `make` turns the request for a batch into the batch, in a worker process or in this one. Into
    `reading` each worker writes its process and the picture it is at. `waited_seconds` is the time
    that the caller has waited for batches.
    """

    def __init__(
        self,
        source: Source,
        make: Dataset[Made | UserError],
        order: Order,
        *,
        steps_per_epoch: int,
        reading: Int64[Tensor, "workers 2"],
        quarantine: Quarantine,
        workers: int,
        prefetch: int = 2,
    ) -> None:
        self.steps_per_epoch = steps_per_epoch
        self.waited_seconds = 0.0
        self.quarantine = quarantine
        self._source, self._maker = source, make
        self._reading = reading
        self._requests = _Requests(order)
        self._feed: Feed[Made | UserError] | None = None
        self._next = (0, 0)
        self._workers, self._prefetch = workers, prefetch

    def _start(self) -> Feed[Made | UserError]:
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

    def order(self, epoch: int) -> Steps:
        """The images of this process in each step of an epoch."""
        return self._requests.order(epoch)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Made]:
        """The batches of an epoch from `start_step` on; earlier ones are not read.

        One epoch is read at a time. Where the last one was read to its end, the batches of the
        next are being made already.
        """
        if not 0 <= start_step <= self.steps_per_epoch:
            raise ValueError(f"step {start_step} is not in an epoch of {self.steps_per_epoch}")
        return self._batches(epoch, start_step)

    def _batches(self, epoch: int, start_step: int) -> Iterator[Made]:
        for step in range(start_step, self.steps_per_epoch):
            began = time.perf_counter()
            made = self._take((epoch, step))
            self.waited_seconds += time.perf_counter() - began
            self.quarantine.add(made.unreadable)
            yield made

    def _take(self, at: tuple[int, int]) -> Made:
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


def new_reading(workers: int) -> Int64[Tensor, "workers 2"]:
    """Shared memory in which workers note what they read."""
    reading: Tensor = torch.full((max(1, workers), 2), -1).share_memory_()
    return reading


def _in_shared_memory(made: Any) -> Any:
    """Move what a worker made to shared memory."""
    if isinstance(made, UserError):
        return made
    return to_shared_memory(made.tensors()) or made
