"""Copies of host arrays to a device that do not wait for it."""

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
