"""The crop of video frames: whole frames whose shorter side has a given length."""

from dataclasses import asdict, dataclass
from typing import Any

import cv2
import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from attmask.evaluation.features.native_size import whole_patches


@dataclass(frozen=True)
class ShortSide:
    """Resizes the shorter side to `shorter_side` and the longer one to a multiple, both in whole
    patches (bilinear without antialiasing, as in DINO)."""

    shorter_side: int
    multiple: int
    """Of the longer side, in pixels."""
    patch_size: int

    @property
    def size_hw(self) -> None:
        """None, because sizes differ between sequences."""

    def shown_hw(self, size_hw: tuple[int, int]) -> tuple[int, int]:
        """Height and width of the crop of a frame of this size."""
        short, long = sorted(size_hw)
        shorter = whole_patches(self.shorter_side, self.patch_size)
        longest = shorter * long // short
        # DINO's multiple of 64 also shortens squares; a frame below one multiple keeps its shape.
        longer = longest // self.multiple * self.multiple or whole_patches(longest, self.patch_size)
        height, width = size_hw
        return (longer, shorter) if height > width else (shorter, longer)

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The resized frame."""
        height, width = self.shown_hw((pixels.shape[0], pixels.shape[1]))
        planes = [
            cv2.resize(np.ascontiguousarray(plane), (width, height), interpolation=cv2.INTER_LINEAR)
            for plane in pixels.transpose(2, 0, 1)
        ]
        return torch.from_numpy(np.stack(planes))

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "short side", **asdict(self)}
