"""Batches of views in a fixed order, whatever the number of workers and ranks, from any step on."""

import logging
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from attmask.data.decode import decode_or_next
from attmask.data.sources import Source
from attmask.data.views import GLOBAL_VIEWS, Views, ViewsConfig, draw, render
from attmask.errors import UserError
from attmask.randomness import uniform

log = logging.getLogger(__name__)

Same = TypeVar("Same")


@dataclass(frozen=True)
class Batch:
    """The views of some images, which images they show, and a line for each unreadable file.

    A file that cannot be read is replaced by the next one in file order: `samples` names the
    image that is shown.
    """

    views: Views
    samples: Int[Tensor, " B"]
    unreadable: tuple[str, ...] = ()

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory; the DataLoader calls this beside a GPU."""
        return Batch(self.views.pin_memory(), self.samples, self.unreadable)


@dataclass(frozen=True)
class _Request:
    """What a worker needs to know to make one batch."""

    epoch: int
    samples: tuple[int, ...]


@dataclass(frozen=True)
class _BatchMaker(Dataset[Batch | UserError]):
    """Makes one whole batch as requested, in a worker process or in this one."""

    source: Source
    config: ViewsConfig
    channels: int
    seed: int

    def __getitem__(self, request: _Request) -> Batch | UserError:
        # An error is handed over, not raised: a DataLoader would wrap it in a worker's traceback.
        try:
            return self._make(request)
        except UserError as error:
            return error

    def _make(self, request: _Request) -> Batch:
        config, batch = self.config, len(request.samples)
        large, small = config.global_size, config.local_size
        globals_ = torch.empty(GLOBAL_VIEWS, batch, self.channels, large, large, dtype=torch.uint8)
        locals_ = torch.empty(
            config.local_crops, batch, self.channels, small, small, dtype=torch.uint8
        )
        rows = [*globals_.numpy(), *locals_.numpy()]
        shown, unreadable = [], []
        for place, sample in enumerate(request.samples):
            image, index, faults = decode_or_next(self.source, sample, self.channels)
            shown.append(index)
            unreadable += [str(fault) for fault in faults]
            for view, row in enumerate(rows):
                # By the sample asked for, not the one shown: a replacement that is also in the
                # batch by itself gets other views.
                choices = draw(
                    config,
                    image.size,
                    seed=self.seed,
                    epoch=request.epoch,
                    sample=sample,
                    view=view,
                )
                row[place] = render(image, choices)
        return Batch(Views(globals_, locals_), torch.tensor(shown), tuple(unreadable))


class _Requests(Sampler[_Request]):
    """The batches still to be made; changed before each epoch, read by the DataLoader.

    A new sampler would need a new DataLoader, and with it new worker processes every epoch.
    """

    def __init__(self) -> None:
        self.pending: Sequence[_Request] = ()

    def __iter__(self) -> Iterator[_Request]:
        return iter(self.pending)


class Loader:
    """Cuts the images of a source into batches of views, epoch after epoch.

    `batch_size` counts the images of all ranks together; each rank makes its own contiguous share
    of every batch. `waited_seconds` adds up how long the caller stood waiting for batches.
    """

    def __init__(
        self,
        source: Source,
        config: ViewsConfig,
        *,
        channels: int,
        batch_size: int,
        seed: int,
        workers: int,
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
        self._images = len(source)
        self._batch_size = batch_size
        self._seed = seed
        share = batch_size // world
        self._share = slice(rank * share, (rank + 1) * share)
        self._named: set[str] = set()
        self._requests = _Requests()
        self._loader: DataLoader[Batch | UserError] = DataLoader(
            _BatchMaker(source, config, channels, seed),
            batch_size=None,
            sampler=self._requests,
            num_workers=workers,
            collate_fn=_as_it_is,
            worker_init_fn=_start_worker,
            persistent_workers=workers > 0,
            prefetch_factor=prefetch if workers > 0 else None,
            pin_memory=torch.cuda.is_available(),
            # Its own, because a DataLoader draws a number each epoch: the caller's generator
            # must not depend on how often data was read.
            generator=torch.Generator(),
        )

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from `start_step` on; what is before is not read.

        One epoch is read at a time: asking for the next one ends an unfinished one.
        """
        if not 0 <= start_step <= self.steps_per_epoch:
            raise ValueError(f"step {start_step} is not in an epoch of {self.steps_per_epoch}")
        return self._batches(epoch, start_step)

    def _batches(self, epoch: int, start_step: int) -> Iterator[Batch]:
        numbers = uniform("order of images", self._seed, epoch, torch.arange(self._images))
        images = numbers.argsort(stable=True).tolist()
        size = self._batch_size
        batches = (
            images[step * size : (step + 1) * size]
            for step in range(start_step, self.steps_per_epoch)
        )
        self._requests.pending = [_Request(epoch, tuple(batch[self._share])) for batch in batches]
        began = time.perf_counter()
        for made in self._loader:
            self.waited_seconds += time.perf_counter() - began
            if isinstance(made, UserError):
                raise made
            self._warn_once(made.unreadable)
            yield made
            began = time.perf_counter()

    def _warn_once(self, unreadable: Sequence[str]) -> None:
        """Name each unreadable file the first time it is met (workers have no terminal)."""
        for line in unreadable:
            if line not in self._named:
                self._named.add(line)
                log.warning("%s; the next readable image takes its place", line)


def _as_it_is(made: Same) -> Same:
    return made


def _start_worker(_: int) -> None:
    """One thread a worker; signals to stop are for the main process, which ends its workers itself.

    Batch systems send SIGTERM to every process of a job. The first one is passed over, so that
    the main process can finish its step and save; another ends the worker.
    """
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _pass_over_once)


def _pass_over_once(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
