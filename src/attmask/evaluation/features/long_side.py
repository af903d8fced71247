"""The crop of landmark retrieval: whole images with a maximum longer side."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from attmask.evaluation.features.crops import as_tensor, planes

RegionBox: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels of the stored image."""


@dataclass(frozen=True)
class LongSide:
    """Resizes the longer side to at most `longer_side`; smaller images are not enlarged.

    With `boxes`, image `index` is cropped to `boxes[index]`, at the scale of the whole image.
    """

    longer_side: int
    boxes: tuple[RegionBox, ...] | None = None

    @property
    def size_hw(self) -> None:
        """None, because sizes differ between images."""

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The image or its box, resized (Lanczos, as in DINO)."""
        shown = pixels if self.boxes is None else _inside(pixels, self.boxes[index])
        longest = self.longer_side * max(shown.shape[:2]) / max(pixels.shape[:2])
        channels = planes(shown)
        for plane in channels:
            plane.thumbnail((max(1, longest), max(1, longest)), Image.Resampling.LANCZOS)
        return torch.cat([as_tensor(plane) for plane in channels])

    def describe(self) -> dict[str, Any]:
        """Its fields, the boxes as a hash."""
        boxes = None if self.boxes is None else json.dumps(self.boxes)
        return {
            "crop": "long side",
            "longer_side": self.longer_side,
            "boxes": None if boxes is None else hashlib.sha256(boxes.encode()).hexdigest(),
        }


def _inside(pixels: UInt8[np.ndarray, "H W C"], box: RegionBox) -> UInt8[np.ndarray, "h w C"]:
    """The pixels in a box, at least one."""
    height, width = pixels.shape[:2]
    left, top, right, bottom = (round(side) for side in box)
    left, top = min(max(0, left), width - 1), min(max(0, top), height - 1)
    return pixels[top : max(top + 1, bottom), left : max(left + 1, right)]
