"""Numbers that the host knows, on a device: sent without waiting for it."""

import numpy as np
import torch
from torch import Tensor


def to_device(numbers: np.ndarray | np.generic, device: torch.device) -> Tensor:
    """The numbers as a tensor on a device.

    A copy from page-locked memory does not wait for what the device is computing.
    """
    tensor = torch.from_numpy(np.ascontiguousarray(numbers))
    if device.type == "cuda" and torch.cuda.is_available():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)
