"""Copies between host and device that do not wait for the device."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor


def to_device(numbers: np.ndarray | np.generic, device: torch.device) -> Tensor:
    """Copy an array to a device.

    The copy is made from page-locked memory, so it does not wait for the device.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(numbers))
    if device.type == "cuda" and torch.cuda.is_available():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def to_host(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to copy a tensor to the host; the result waits for the copy and gives it."""
    if tensor.device.type != "cuda" or not torch.cuda.is_available():
        kept = tensor.detach().clone()
        return lambda: kept.cpu()
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copy.copy_(tensor.detach(), non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def wait() -> Tensor:
        arrived.synchronize()
        return copy

    return wait
