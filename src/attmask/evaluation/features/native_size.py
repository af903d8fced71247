"""Images shown at their own size: not resized, only cut to whole patches."""

import io
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.data.source import Source


@dataclass(frozen=True)
class NativeSize:
    """The centre of an image, as much of it as whole patches cover."""

    patch_size: int
    side: int | None = None
    """The side of all images where they are squares of one size: then they go in batches."""

    @property
    def size_hw(self) -> tuple[int, int] | None:
        """That of the one size, if all images have it."""
        if self.side is None:
            return None
        side = whole_patches(self.side, self.patch_size)
        return side, side

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The image itself, or its centre; one smaller than a patch gets a black border."""
        height, width = (self._shown(side) for side in pixels.shape[:2])
        left, top = (width - pixels.shape[1]) // 2, (height - pixels.shape[0]) // 2
        right, bottom = width - pixels.shape[1] - left, height - pixels.shape[0] - top
        picture = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        return functional.pad(picture, (left, right, top, bottom))  # negative padding cuts off

    def _shown(self, side: int) -> int:
        return whole_patches(self.side or side, self.patch_size)

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "native size", **asdict(self)}


def whole_patches(side: int, patch_size: int) -> int:
    """The most pixels along a side that whole patches cover, at least one patch."""
    return max(1, side // patch_size) * patch_size


def common_side(source: Source) -> int | None:
    """The side of all images if they are squares of one size; only their headers are read."""
    common: int | None = None
    for index in range(len(source)):
        try:
            raw = source.read(index)
            if isinstance(raw, np.ndarray):
                height, width = raw.shape[:2]
            else:
                with Image.open(io.BytesIO(raw)) as picture:
                    width, height = picture.size
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None  # Pillow cannot read it: it may have any size
        if width != height or common not in (None, width):
            return None
        common = width
    return common
