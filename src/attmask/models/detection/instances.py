"""Instances of an image: the truth, the detections, and masks inside boxes pasted into it."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, UInt8
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


@dataclass(frozen=True, eq=False)
class Detections:
    """What is found in one image, best score first."""

    boxes: Float[Tensor, "n 4"]
    scores: Float[Tensor, " n"]
    labels: Int[Tensor, " n"]
    masks: Float[Tensor, "n M M"]
    """Probabilities inside the box."""


def paste_masks(
    masks: Float[Tensor, "n M M"],
    boxes: Float[Tensor, "n 4"],
    size_hw: tuple[int, int],
    threshold: float = 0.5,
) -> Bool[Tensor, "n H W"]:
    """Masks of the size of the image: where the probability inside the box reaches the threshold.

    The value at the centre of a pixel is interpolated between the centres of the cells of the
    mask, beyond which it falls to 0 over the width of one cell.
    """
    pasted = torch.zeros(len(masks), *size_hw, dtype=torch.bool, device=masks.device)
    for place, (mask, box) in enumerate(zip(masks.float(), boxes.tolist(), strict=True)):
        rows = _reached(box[1], box[3], masks.shape[-1], size_hw[0])
        columns = _reached(box[0], box[2], masks.shape[-1], size_hw[1])
        y = _inside(rows, box[1], box[3], masks.device)
        x = _inside(columns, box[0], box[2], masks.device)
        grid = torch.stack([x.expand(len(y), -1), y[:, None].expand(-1, len(x))], dim=-1)
        if grid.numel():
            values = F.grid_sample(mask[None, None], grid[None], align_corners=False)[0, 0]
            pasted[place, rows.start : rows.stop, columns.start : columns.stop] = (
                values >= threshold
            )
    return pasted


def _reached(start: float, end: float, cells: int, pixels: int) -> range:
    """The pixels along one side of a box, and half a cell beyond both of its ends."""
    beyond = (end - start) / (2 * cells)
    first = min(max(int(start - beyond), 0), pixels)
    return range(first, min(max(int(end + beyond) + 1, first), pixels))


def _inside(pixels: range, start: float, end: float, device: torch.device) -> Float[Tensor, " p"]:
    """The centres of pixels, -1 to 1 between the ends of a box."""
    centres = torch.arange(pixels.start, pixels.stop, device=device) + 0.5
    return (centres - start) / max(end - start, 1e-6) * 2 - 1
