"""Checkpoints that are written while training goes on: copied first, then written by a thread."""

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from attmask import distributed


class BackgroundWriter:
    """Writes one thing at a time in a thread; an error is raised where the next step looks."""

    def __init__(self) -> None:
        # Its thread is joined when the interpreter ends, so what was begun is finished.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="attmask-checkpoint")
        self._pending: Future[None] | None = None

    def start(self, write: Callable[[], None]) -> None:
        """Begin to write, after what is being written."""
        self.wait()
        self._pending = self._thread.submit(write)

    def wait(self) -> None:
        """Wait until everything is written; raise the error if that failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def check(self) -> None:
        """Raise the error of a write that has failed meanwhile."""
        if self._pending is not None and self._pending.done():
            self.wait()


def host_copies(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the host that later steps do not change."""
    copies = {name: _copy(tensor.detach()) for name, tensor in tensors.items()}
    if any(tensor.device.type == "cuda" for tensor in tensors.values()):
        torch.cuda.synchronize()
    return copies


def _copy(tensor: Tensor) -> Tensor:
    if tensor.device.type != "cuda" or distributed.is_sharded(tensor):
        return tensor.to("cpu", copy=True, memory_format=torch.contiguous_format)
    # Page-locked memory is filled at the full speed of the bus.
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    return copy.copy_(tensor, non_blocking=True)
