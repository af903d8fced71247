"""Process groups; with one process every function here does nothing."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from attmask.errors import UserError

Value = TypeVar("Value")


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The rank of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    """Whether this is the main process, which writes files and logs."""
    return rank() == 0


def require_one_process() -> None:
    """Raise an error if several processes were launched: they would overwrite each other's run."""
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


def all_agree(yes: bool) -> bool:
    """Whether the value is true in every process."""
    if world_size() == 1:
        return yes
    said: list[bool | None] = [None] * world_size()
    dist.all_gather_object(said, yes)
    return all(said)


def from_main(value: Value) -> Value:
    """Broadcast a value from the main process."""
    if world_size() == 1:
        return value
    said = [value]
    dist.broadcast_object_list(said, src=0)
    return said[0]


def gather(value: Value) -> list[Value]:
    """The values of all processes, in the order of their ranks."""
    if world_size() == 1:
        return [value]
    values: list[Value | None] = [None] * world_size()
    dist.all_gather_object(values, value)
    return [each for each in values if each is not None]


def share_of(count: int) -> range:
    """This process's part of so many things, in order: all parts together are all of them."""
    return range(rank() * count // world_size(), (rank() + 1) * count // world_size())


def wait_for_all() -> None:
    """Wait until every process has reached this point."""
    if world_size() > 1:
        dist.barrier()


@contextmanager
def processes(device: torch.device) -> Iterator[None]:
    """The process group of a launch with several processes (torchrun), for as long as it lasts."""
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched == 1 or not dist.is_available() or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(own_device(device))  # what NCCL sends objects through
    # The main process may join features for many minutes; torchrun ends all where one dies.
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(hours=6))
    try:
        yield
    finally:
        dist.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """The device of this process: on a machine with several GPUs, each process has its own."""
    if device == torch.device("cuda") and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


def launched_main() -> bool:
    """Whether this is the main process of a launch, also after its group has ended."""
    return int(os.environ.get("RANK", "0")) == 0


def sums(*numbers: int) -> list[int]:
    """The sum of each number over all processes."""
    if world_size() == 1:
        return [*numbers]
    total = torch.tensor(numbers, dtype=torch.int64, device=_group_device())
    dist.all_reduce(total)
    return [int(number) for number in total.tolist()]


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of their ranks; each may have another number."""
    if world_size() == 1:
        return rows
    lengths = sums(*(len(rows) if each == rank() else 0 for each in range(world_size())))
    # Backends want equal shapes: shorter parts are padded.
    padded = rows.new_zeros((max(lengths), *rows.shape[1:]), device=_group_device())
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    own = [part[:length] for part, length in zip(parts, lengths, strict=True)]
    return torch.cat(own).to(rows.device)


@contextmanager
def errors_shared() -> Iterator[None]:
    """Raise the `UserError` of one process on all of them, at the end of this block."""
    fault: UserError | None = None
    try:
        yield
    except UserError as error:
        fault = error
    for said in filter(None, gather("" if fault is None else str(fault))):
        raise fault if fault is not None and str(fault) == said else UserError(said)


def _group_device() -> torch.device:
    """Where tensors must be to be sent: gloo takes them from the CPU, NCCL from a GPU."""
    if "cpu:" in str(dist.get_backend_config()):
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())
