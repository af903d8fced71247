"""Groups of real processes, forked from this one, so that they need not import anything."""

import multiprocessing
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch.distributed as dist

Value = TypeVar("Value")


def in_group(world: int, folder: Path, work: Callable[[int], Value]) -> list[Value]:
    """What `work(rank)` returns in each process of a gloo group, in the order of ranks.

    A process that waits for the others in vain gives up after 30 seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fork = multiprocessing.get_context("fork")
    group = [
        fork.Process(target=_member, args=(rank, world, folder, work)) for rank in range(world)
    ]
    for process in group:
        process.start()
    for process in group:
        process.join(timeout=90)
        process.kill()
    assert [process.exitcode for process in group] == [0] * world
    return [pickle.loads((folder / str(rank)).read_bytes()) for rank in range(world)]


def _member(rank: int, world: int, folder: Path, work: Callable[[int], object]) -> None:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'store'}",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=30),
    )
    found = work(rank)
    dist.barrier()  # fails if one of them has called something else
    dist.destroy_process_group()
    (folder / str(rank)).write_bytes(pickle.dumps(found))
