"""Pictures shown as they are published: not resized, only cut to whole patches."""

import io
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.data.source import Source
from attmask.evaluation.features.readout import Reading
from attmask.models.backbone import Backbone


@dataclass(frozen=True)
class NativeSize:
    """The middle of a picture, as much of it as whole patches cover."""

    patch_size: int
    reading: Reading
    side: int | None = None
    """The side of all pictures where they are squares of one size: then they go in batches."""

    @property
    def batched(self) -> bool:
        """Where all pictures have one size."""
        return self.side is not None

    def crop(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The picture itself, or its middle; one smaller than a patch gets a black border."""
        height, width = (self._shown(side) for side in pixels.shape[:2])
        left, top = (width - pixels.shape[1]) // 2, (height - pixels.shape[0]) // 2
        right, bottom = width - pixels.shape[1] - left, height - pixels.shape[0] - top
        picture = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        return functional.pad(picture, (left, right, top, bottom))  # what is negative is cut off

    def _shown(self, side: int) -> int:
        return whole_patches(self.side or side, self.patch_size)

    def vectors(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """What `reading` reads."""
        return self.reading(backbone, images)

    def width(self, backbone: Backbone) -> int:
        """As wide as what is read."""
        return self.reading.width(backbone)

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "as published", **asdict(self), "reading": self.reading.model_dump()}


def whole_patches(side: int, patch_size: int) -> int:
    """The most pixels along a side that whole patches cover, at least one patch."""
    return max(1, side // patch_size) * patch_size


def common_side(source: Source) -> int | None:
    """The side of all pictures if they are squares of one size; only their headers are read."""
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
            return None  # not Pillow's to read: it may have any size
        if width != height or common not in (None, width):
            return None
        common = width
    return common
