"""Process groups; with one process every function here does nothing."""

import math
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from attmask.errors import UserError
from attmask.launch import (
    export_environment,
    has_own_part,
    launched,
    launched_here,
    launched_rank,
    local_rank,
)
from attmask.wording import counted

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

Value = TypeVar("Value")

_BACKENDS = {"cuda": "nccl", "xpu": "xccl"}
"""What sends the tensors of a device."""
_ATTEMPTS = 3
"""How often processes that have met try to connect to each other."""


def world_size() -> int:
    """The number of processes that train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """The rank of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


def is_main() -> bool:
    """Whether this is the main process, which writes files and logs."""
    return rank() == 0


def average_(tensor: Tensor) -> Tensor:
    """Replace the tensor by its mean over all processes."""
    if world_size() > 1:
        dist.all_reduce(tensor)
        tensor /= world_size()
    return tensor


def is_sharded(tensor: Tensor) -> "TypeGuard[DTensor]":
    """Whether each process holds only a part of the tensor."""
    if world_size() == 1:
        return False
    from torch.distributed.tensor import DTensor  # takes half a second

    return isinstance(tensor, DTensor)


def own_part(tensor: Tensor) -> Tensor:
    """The part of a sharded tensor that this process holds; any other tensor as it is."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def norms_of_all(norms: Tensor) -> Tensor:
    """The norms of sharded tensors from those of this process's parts, in one message."""
    squared = norms.square()
    dist.all_reduce(squared)
    return squared.sqrt()


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


def sums(*numbers: int) -> list[int]:
    """The sum of each number over all processes."""
    if world_size() == 1:
        return [*numbers]
    total = torch.tensor(numbers)
    dist.all_reduce(total)
    return [int(number) for number in total.tolist()]


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of their ranks; each may have another number."""
    if world_size() == 1:
        return rows
    lengths = sums(*(len(rows) if each == rank() else 0 for each in range(world_size())))
    # Shapes must be equal, so shorter parts are padded; a group can always send from the host.
    padded = rows.new_zeros((max(lengths), *rows.shape[1:]), device="cpu")
    padded[: len(rows)] = rows
    parts = [torch.empty_like(padded) for _ in lengths]
    dist.all_gather(parts, padded)
    own = [part[:length] for part, length in zip(parts, lengths, strict=True)]
    return torch.cat(own).to(rows.device)


def share_of(count: int) -> range:
    """This process's part of so many things, in order: all parts together are all of them."""
    return range(rank() * count // world_size(), (rank() + 1) * count // world_size())


def wait_for_all() -> None:
    """Wait until every process has reached this point."""
    if world_size() > 1:
        dist.barrier()


@contextmanager
def processes(
    device: torch.device,
    *,
    start_timeout: timedelta = timedelta(minutes=10),
    timeout: timedelta = timedelta(hours=6),
) -> Iterator[None]:
    """The process group of a launch with several processes, for as long as it lasts.

    `start_timeout` is how long to wait for all processes to come, `timeout` how long for one that
    is late: torchrun ends all where one dies, but the main one may join features for many minutes.
    """
    if launched() == 1 or not dist.is_available() or dist.is_initialized():
        yield
        return
    export_environment()
    own = own_device(device)
    backend = "cpu:gloo"  # host tensors too, so that processes agree without waiting for a device
    if own.type != "cpu":
        torch.accelerator.set_device_index(own)
        backend = f"{backend},{own.type}:{_BACKENDS[own.type]}"
    with one_line_errors():
        _connect(backend, *_meet(start_timeout), start_timeout)
        dist.set_timeout(timeout)
    lost = False
    try:
        with one_line_errors():
            yield
    except LostProcessError:
        lost = True
        raise
    finally:
        if not lost or own.type == "cpu":  # NCCL would wait for the lost process
            dist.destroy_process_group()


def _meet(timeout: timedelta) -> tuple[Any, int, int]:
    """The store through which all processes find each other, their rank and their number."""
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        if not os.environ.get(name):
            raise UserError(
                f"WORLD_SIZE says that {launched()} processes were launched, but {name} is not "
                f"set; launch them with --processes {launched()}, torchrun or srun, or unset "
                "WORLD_SIZE"
            )
    try:
        store, rank, count = next(rendezvous("env://", timeout=timeout))
        store.set_timeout(timeout)
        return PrefixStore(_start_of_all(store, rank, count, timeout), store), rank, count
    except dist.DistError as fault:
        raise UserError(
            f"{launched()} processes were launched, but not all of them met within "
            f"{timeout.total_seconds():.0f} s at {os.environ.get('MASTER_ADDR')}:"
            f"{os.environ.get('MASTER_PORT')}; see whether one of them failed, and whether the "
            "machines reach each other there, or raise train.start_timeout_minutes"
        ) from fault


def _start_of_all(store: Any, rank: int, count: int, timeout: timedelta) -> str:
    """A name of this start that all processes know once all of them are there.

    torchrun keeps its store when it restarts processes, so whatever it holds may come from those
    that were there before, such as the addresses they listened at: names are drawn anew.
    """
    own = secrets.token_hex(8)
    if rank > 0:
        store.set(f"hello {rank}", own)
        name: str = store.get(f"welcome {own}").decode()
        store.set(f"{rank} is in {name}", "")
        store.wait([f"all are in {name}"], timeout)
        return name
    until = time.monotonic() + timeout.total_seconds()
    others, welcomed = range(1, count), set[str]()
    while not all(store.check([f"{other} is in {own}"]) for other in others):
        for hello in (f"hello {other}" for other in others):
            if store.check([hello]) and (token := store.get(hello).decode()) not in welcomed:
                store.set(f"welcome {token}", own)
                welcomed.add(token)
        if time.monotonic() > until:
            raise dist.DistStoreError(f"{len(welcomed)} of {len(others)} came")
        time.sleep(0.02)
    store.set(f"all are in {own}", "")
    return own


def _connect(backend: str, store: Any, rank: int, count: int, timeout: timedelta) -> None:
    """Make the group; on a busy machine gloo may lose a connection, so all try more than once."""
    # gloo waits five times as long for a connection as for a message.
    each = max(timeout / (5 * _ATTEMPTS), timedelta(seconds=1))
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            named = PrefixStore(f"attempt {attempt}", store)
            dist.init_process_group(backend, store=named, rank=rank, world_size=count, timeout=each)
            dist.all_reduce(torch.zeros(1))  # nobody goes on before all are connected
        except RuntimeError as fault:
            if dist.is_initialized():
                dist.destroy_process_group()
            if not _is_communication(fault):
                raise
            if attempt == _ATTEMPTS:
                raise UserError(
                    f"{count} processes have met, but process {rank} cannot connect to all others; "
                    "open the ports between the machines, or name the network card in "
                    "GLOO_SOCKET_IFNAME"
                ) from fault
        else:
            return


def host_group() -> dist.ProcessGroup:
    """A second group of all processes, for host tensors and threads beside the training."""
    group = dist.new_group(backend="gloo", timeout=timedelta(minutes=1))
    assert isinstance(group, dist.ProcessGroup)
    dist.all_reduce(torch.zeros(1), group=group)
    dist.set_timeout(timedelta(minutes=30), group)  # a slow disk is no error
    return group


class LostProcessError(UserError):
    """Another process has ended or did not answer in time, as all that are left notice.

    The first two tell it, because one of them may be the lost one.
    """

    def __init__(self, line: str) -> None:
        super().__init__(line)
        self.in_all_processes = launched_rank() != 1


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors of the communication into a one-line LostProcessError."""
    try:
        yield
    except RuntimeError as fault:
        if not _is_communication(fault):
            raise
        said = str(fault)
        late = "imed out" in said or "imeout" in said
        happened = "did not answer in time" if late else "has ended"
        advice = (
            "it may be slow or stuck: look at its messages, or raise train.timeout_minutes"
            if late
            else "look at its messages"
        )
        raise LostProcessError(
            f"another process {happened}, so process {launched_rank()} of {launched()} cannot go "
            f"on; {advice}; the same command resumes"
        ) from fault


def _is_communication(fault: RuntimeError) -> bool:
    """gloo raises plain RuntimeErrors, most of which name its files."""
    signs = ("gloo", "NCCL", "pair closure", "Connection closed by peer")
    return isinstance(fault, dist.DistError) or any(sign in str(fault) for sign in signs)


def own_device(device: torch.device) -> torch.device:
    """The device of this process: on a machine with several GPUs, each process has its own."""
    if launched() == 1 or device.type == "cpu":
        return device
    if device.type not in _BACKENDS:
        raise UserError(
            f"several processes cannot train on {device.type} together; use train.device=cpu"
        )
    if str(device) != device.type:
        raise UserError(
            f"train.device={device} is one device for {launched()} processes; use "
            f"train.device={device.type}, where each has its own"
        )
    there = torch.accelerator.device_count()
    if there == 1 and has_own_part():  # srun --gpus-per-task shows each process its own alone
        return torch.device(device.type, 0)
    if local_rank() >= there:
        raise UserError(
            f"{launched_here()} processes were launched on this machine, which has "
            f"{counted(there, 'device')} of {device.type}; launch as many processes as devices"
        )
    return torch.device(device.type, local_rank())


def launched_main() -> bool:
    """Whether this is the main process of a launch, also after its group has ended."""
    return launched_rank() == 0
