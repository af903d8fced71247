"""Process groups; on one process everything here does nothing."""

import math
import os

import torch.distributed as dist
from torch import Tensor

from attmask.errors import UserError


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The number of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    """Whether this process is the one that writes and speaks."""
    return rank() == 0


def require_one_process() -> None:
    """Refuse a launch with several processes, which would train apart and overwrite each other."""
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if max(launched, world_size()) > 1:
        raise UserError(
            f"{max(launched, world_size())} processes were launched, but gradients are not yet "
            "shared between processes; start one process (unset WORLD_SIZE)"
        )


def average_(tensor: Tensor) -> Tensor:
    """Replace the tensor by its mean over all processes."""
    if world_size() > 1:
        dist.all_reduce(tensor)
        tensor /= world_size()
    return tensor


def logsumexp_over_rows(values: Tensor) -> Tensor:
    """log of the sum of exp over the rows of all processes, for each column."""
    if world_size() == 1:
        return values.logsumexp(dim=0)
    largest = values.amax(dim=0) if len(values) else values.new_full(values.shape[1:], -math.inf)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    total = (values - largest).exp().sum(dim=0)
    dist.all_reduce(total)
    return total.log() + largest
