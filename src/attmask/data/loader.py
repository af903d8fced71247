"""Batches of views in a fixed order, whatever the number of workers and ranks, from any step on."""

import atexit
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Literal, TypeVar
from weakref import WeakSet

import cv2
import torch
from jaxtyping import Int64
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from attmask.data.batch import Batch, BatchMaker, Request
from attmask.data.order import sequential, shuffled
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.sources import DataConfig
from attmask.data.views import ViewsConfig
from attmask.errors import UserError

Same = TypeVar("Same")


@dataclass
class _Requests(Sampler[Request]):
    """Requests without end, epoch after epoch, so that workers are never idle between epochs.

    It must not refer to its loader: in a circle of references Python would close the queues to
    the workers before it tells them to end.
    """

    source: Source
    order: Literal["shuffled", "sequential"]
    batch_size: int
    seed: int
    share: slice
    start: tuple[int, int] = (0, 0)

    def batches(self, epoch: int) -> Int64[Tensor, "steps share"]:
        """Which images this rank shows in each step of an epoch."""
        size, seed = self.batch_size, self.seed
        if self.order == "sequential":
            whole = sequential(self.source, batch_size=size, seed=seed, epoch=epoch)
        else:
            whole = shuffled(len(self.source), batch_size=size, seed=seed, epoch=epoch)
        return whole[:, self.share]

    def __iter__(self) -> Iterator[Request]:
        epoch, step = self.start
        while True:
            for samples in self.batches(epoch)[step:]:
                yield Request(epoch, tuple(samples.tolist()))
            epoch, step = epoch + 1, 0


class Loader:
    """Cuts the images of a source into batches of views, epoch after epoch.

    `batch_size` counts the images of all ranks together; each rank makes its own contiguous share
    of every batch. `waited_seconds` adds up how long the caller stood waiting for batches.
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
            raise UserError(
                f"{len(source)} images are fewer than one batch of {batch_size}; "
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
        self._running: Iterator[Batch | UserError] | None = None
        self._next = (0, 0)
        self._maker = BatchMaker(source, data, config, seed, self._reading)
        self._workers, self._prefetch = workers, prefetch
        self._loader: DataLoader[Batch | UserError] | None = None
        _OPEN.add(self)

    def _start(self) -> DataLoader[Batch | UserError]:
        workers = self._workers
        return DataLoader(
            self._maker,
            batch_size=None,
            sampler=self._requests,
            num_workers=workers,
            collate_fn=_as_it_is,
            worker_init_fn=_start_worker,
            persistent_workers=workers > 0,
            prefetch_factor=self._prefetch if workers > 0 else None,
            pin_memory=torch.cuda.is_available(),
            # Its own, because a DataLoader draws a number when it starts: the caller's generator
            # must not depend on how often data was read.
            generator=torch.Generator(),
        )

    def close(self) -> None:
        """End the workers; another epoch starts new ones."""
        self._running = self._loader = None

    def order(self, epoch: int) -> Int64[Tensor, "steps share"]:
        """Which images this rank shows in each step of an epoch."""
        return self._requests.batches(epoch)

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start_step` on; what is before is not read.

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
        """The batch of an epoch and a step; any but the next one begins anew there."""
        if self._running is None or at != self._next:
            self._requests.start = at
            if self._loader is None:
                self._loader = self._start()
            self._running = iter(self._loader)
        epoch, step = at
        last = step + 1 == self.steps_per_epoch
        self._next = (epoch + 1, 0) if last else (epoch, step + 1)
        try:
            made = next(self._running)
        except RuntimeError as fault:
            made = self._explained(fault)
        if isinstance(made, UserError):
            self.close()
            raise made
        return made

    def _explained(self, fault: RuntimeError) -> UserError:
        """Which picture a worker was reading when it died; any other fault is raised again."""
        words = f"{fault} {fault.__cause__}"
        dead = re.findall(r"worker \(pid(?:\(s\))? ([\d, ]+)\)", words)
        processes = {int(number) for number in re.findall(r"\d+", " ".join(dead))}
        read = [int(index) for process, index in self._reading.tolist() if process in processes]
        if not read:
            raise fault
        how = re.search(r"killed by signal: (\w+)", words)
        return UserError(
            f"a worker process {f'was ended by signal {how[1]}' if how else 'ended'} while it read "
            f"{self._source.place(read[0])}; take this picture out, or use fewer train.workers if "
            "memory ran out"
        )


_OPEN: WeakSet[Loader] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Workers pass over the signal by which Python would end them, and it would wait for ever."""
    for loader in _OPEN:
        loader.close()


def _as_it_is(made: Same) -> Same:
    return made


def _start_worker(_: int) -> None:
    """One thread a worker; signals to stop are for the main process, which ends its workers itself.

    Batch systems send SIGTERM to every process of a job. The first one is passed over, so that
    the main process can finish its step and save; another ends the worker.
    """
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _pass_over_once)


def _pass_over_once(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
