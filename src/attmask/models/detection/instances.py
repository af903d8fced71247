"""Instances of an image: the truth."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Instances:
    """The true instances of one image."""

    boxes: Float[Tensor, "n 4"]
    """x1 y1 x2 y2, in pixels of the image without padding."""
    labels: Int[Tensor, " n"]
    masks: UInt8[Tensor, "n h w"]
    """0 or 1, of the size of the image without padding."""
    size_hw: tuple[int, int]

    def to(self, device: torch.device | str) -> "Instances":
        """The same on a device."""
        return replace(
            self,
            boxes=self.boxes.to(device, non_blocking=True),
            labels=self.labels.to(device, non_blocking=True),
            masks=self.masks.to(device, non_blocking=True),
        )
