"""A process group of one process, for steps on tensors without values."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist

from attmask.errors import UserError


@contextmanager
def group_of(processes: int) -> Iterator[None]:
    """Let this process be the first of so many, which send each other nothing.

    PyTorch's fake backend gives every message the shape of its answer and no values.
    """
    dist.init_process_group("fake", rank=0, world_size=processes)
    try:
        yield
    finally:
        dist.destroy_process_group()


def refuse_inside_a_group() -> None:
    """Raise an error if there is a group already: a plan must not send anything in it."""
    if dist.is_available() and dist.is_initialized():
        raise UserError(
            "a plan is made by one process outside of a process group, and there is one of "
            f"{dist.get_world_size()}; plan before it is made or after it is destroyed"
        )
