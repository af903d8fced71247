"""The order of images in an epoch, drawn from counters, so that every rank computes the same."""

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from attmask.data.source import Source
from attmask.randomness import uniform

ROWS_A_SHARD = 1000  # where pictures are single files
WINDOW = 256  # images of a lane that are shuffled among themselves


def shuffled(
    images: int, *, batch_size: int, seed: int, epoch: int
) -> Int64[Tensor, "steps {batch_size}"]:
    """All images in random order; those that do not fill a batch are dropped, others each epoch."""
    numbers = uniform("order of images", seed, epoch, np.arange(images))
    steps = images // batch_size
    order = torch.from_numpy(numbers.argsort(kind="stable"))
    return order[: steps * batch_size].view(steps, batch_size)


def sequential(
    source: Source, *, batch_size: int, seed: int, epoch: int
) -> Int64[Tensor, "steps {batch_size}"]:
    """Shards in a new order, laid end to end and cut into one lane for each place of a batch.

    A lane is read front to back but for shuffling within a window, so that a disk is read in long
    stretches; a batch takes one image of every lane, so it comes from all over the data. Lanes
    belong to places, not to ranks or workers, and so the order does not depend on these. What
    fills no batch is left out, others each epoch.
    """
    images, steps = len(source), len(source) // batch_size
    line = _laid_end_to_end(source, seed=seed, epoch=epoch)
    begin = int(uniform("where an epoch begins", seed, epoch) * images)
    lanes = line.roll(-begin)[: steps * batch_size].view(batch_size, steps)
    places = np.arange(batch_size)[:, None], np.arange(steps)
    within = torch.from_numpy(uniform("order within windows", seed, epoch, *places))
    windows = torch.arange(steps) // WINDOW
    return lanes.gather(1, (windows + within).argsort(dim=1, stable=True)).T.contiguous()


def _laid_end_to_end(source: Source, *, seed: int, epoch: int) -> Int64[Tensor, " M"]:
    """The indices of all images: shard after shard in a drawn order, each front to back."""
    begins = source.store.shards
    # One shard has no order to draw: a single large file is cut as loose files are.
    if len(begins) > 1:
        shard_of = np.searchsorted(np.asarray(begins), source.rows, side="right") - 1
    else:
        shard_of = source.rows // ROWS_A_SHARD
    shards = int(shard_of.max(initial=0)) + 1
    rank = uniform("order of shards", seed, epoch, np.arange(shards)).argsort().argsort()
    front_to_back = np.lexsort((source.rows, rank[shard_of]))
    return torch.from_numpy(front_to_back)
