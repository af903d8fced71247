"""The crop of images at their native size: not resized, only cropped to whole patches."""

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
    """Crops the centre of an image to whole patches, without resizing."""

    patch_size: int
    side: int | None = None
    """The side of all images if they are squares of one size, which allows batches."""

    @property
    def size_hw(self) -> tuple[int, int] | None:
        """The common size, if all images have one."""
        if self.side is None:
            return None
        side = whole_patches(self.side, self.patch_size)
        return side, side

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The centre of the image; images smaller than a patch are padded with black."""
        height, width = (self._shown(side) for side in pixels.shape[:2])
        left, top = (width - pixels.shape[1]) // 2, (height - pixels.shape[0]) // 2
        right, bottom = width - pixels.shape[1] - left, height - pixels.shape[0] - top
        image = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        return functional.pad(image, (left, right, top, bottom))  # negative padding crops

    def _shown(self, side: int) -> int:
        return whole_patches(self.side or side, self.patch_size)

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "native size", **asdict(self)}


def whole_patches(side: int, patch_size: int) -> int:
    """The largest multiple of the patch size within a side, at least one patch."""
    return max(1, side // patch_size) * patch_size


def common_side(source: Source) -> int | None:
    """The side of all images if they are squares of one size, from their headers."""
    common: int | None = None
    for index in range(len(source)):
        try:
            raw = source.read(index)
            if isinstance(raw, np.ndarray):
                height, width = raw.shape[:2]
            else:
                with Image.open(io.BytesIO(raw)) as image:
                    width, height = image.size
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            return None  # PIL cannot read it, so its size is unknown
        if width != height or common not in (None, width):
            return None
        common = width
    return common
