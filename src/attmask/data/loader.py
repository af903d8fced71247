"""Batches of views in an order that does not depend on the number of workers and ranks."""

from dataclasses import dataclass, replace
from typing import Literal

from attmask.data.batch import Batch, BatchMaker
from attmask.data.config import DataConfig
from attmask.data.feeding import BatchLoader, new_reading
from attmask.data.order import Batches, sequential, shuffled
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.views import ViewsConfig
from attmask.errors import UserError
from attmask.wording import agree, counted


@dataclass(frozen=True)
class EpochOrder:
    """The images of one rank in each step of an epoch: its contiguous share of every batch."""

    source: Source
    order: Literal["shuffled", "sequential"]
    batch_size: int
    seed: int
    share: slice

    def __call__(self, epoch: int) -> Batches:
        """The order of an epoch."""
        size, seed = self.batch_size, self.seed
        if self.order == "sequential":
            whole = sequential(self.source, batch_size=size, seed=seed, epoch=epoch)
        else:
            whole = shuffled(len(self.source), batch_size=size, seed=seed, epoch=epoch)
        return replace(whole, share=self.share)


class Loader(BatchLoader[Batch]):
    """Loads batches of views of a source, epoch after epoch.

    `batch_size` counts the images of all ranks together; each rank makes its own contiguous share
    of every batch.
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
        ours = share_of_batch(len(source), batch_size, rank=rank, world=world)
        reading = new_reading(workers)
        self._order_of = EpochOrder(source, data.order, batch_size, seed, ours)
        super().__init__(
            source,
            BatchMaker(source, data, config, seed, reading, ours.start),
            self._order_of,
            steps_per_epoch=len(source) // batch_size,
            reading=reading,
            quarantine=quarantine or Quarantine(None, len(source), data.unreadable_limit),
            workers=workers,
            prefetch=prefetch,
        )

    def order(self, epoch: int) -> Batches:
        """The images of this rank in each step of an epoch."""
        return self._order_of(epoch)


def share_of_batch(images: int, batch_size: int, *, rank: int, world: int) -> slice:
    """The part of every batch that a rank makes; an error if there is none."""
    if images < batch_size:
        few = f"{counted(images, 'image')} {agree(images, 'is', 'are')}"
        raise UserError(
            f"{few} fewer than one batch of {batch_size}; "
            f"use train.batch_size={images} or less, or more images"
        )
    if batch_size < 1 or batch_size % world:
        raise UserError(
            f"a batch of {batch_size} images cannot be shared by {world} processes; "
            f"use a multiple of {world}"
        )
    share = batch_size // world
    return slice(rank * share, (rank + 1) * share)
