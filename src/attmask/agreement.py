"""What several processes agree upon: errors, settings, and when to stop or to save."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from attmask import distributed
from attmask.errors import UserError
from attmask.metric import Metric

Value = TypeVar("Value")


class SharedError(UserError):
    """An error that every process of the group raises."""

    in_all_processes = True


@contextmanager
def together() -> Iterator[None]:
    """What fails with a UserError in one process fails in all, with the line of that process."""
    if distributed.world_size() == 1:
        yield
        return
    fault: UserError | None = None
    try:
        yield
    except UserError as raised:
        fault = raised
    lines = distributed.gather("" if fault is None else str(fault))
    failed = [number for number, line in enumerate(lines) if line]
    if not failed:
        return
    first = failed[0]
    where = f"process {first} of {distributed.world_size()}: " if first else ""
    raise SharedError(f"{where}{lines[first]}") from fault


def require_same(what: str, value: Value, tell: Callable[[Value, Value], str], advice: str) -> None:
    """Raise an error in all processes if one has another value than the main one.

    `tell` says how a value differs from that of the main process.
    """
    values = distributed.gather(value)
    for number, other in enumerate(values):
        if other != values[0]:
            raise SharedError(
                f"process {number} of {distributed.world_size()} has other {what} than process 0 "
                f"({tell(other, values[0])}); {advice}"
            )


class Wishes:
    """What any process wishes for, known to all of them one step later; 0 is no wish.

    Nobody waits for it: the numbers travel on the host while the next step is computed. Of several
    processes with different wishes, the largest number counts.
    """

    def __init__(self) -> None:
        self._sent: tuple[dist.Work | None, Tensor] | None = None

    def of_all(self, own: Callable[[], tuple[int, ...]]) -> tuple[int, ...]:
        """The wishes that all processes have sent last; with one process, its own of now."""
        if distributed.world_size() == 1:
            return own()
        if self._sent is None:
            return (0,) * len(own())
        work, numbers = self._sent
        self._sent = None
        if work is not None:
            work.wait()
        return tuple(int(number) for number in numbers.tolist())

    def send(self, *wishes: int) -> None:
        """Send the wishes of this process, for the next `of_all`."""
        if distributed.world_size() > 1:
            numbers = torch.tensor([float(wish) for wish in wishes])
            self._sent = dist.all_reduce(numbers, op=dist.ReduceOp.MAX, async_op=True), numbers


def mean_metrics(metrics: tuple[Metric, ...]) -> tuple[Metric, ...]:
    """The means over all processes, which have equal shares of a batch."""
    if distributed.world_size() == 1:
        return metrics
    values = torch.tensor([metric.value for metric in metrics], dtype=torch.float64)
    means = distributed.average_(values).tolist()
    return tuple(replace(m, value=mean) for m, mean in zip(metrics, means, strict=True))
