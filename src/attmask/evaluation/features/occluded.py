"""Pictures with their most attended patches blacked out, by another network's attention."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8, UInt16
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.features.forward import crop_pixels
from attmask.evaluation.features.readout import Reading
from attmask.models.backbone import Backbone

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class ClsAttention:
    """What `[CLS]` of the last block attends to in a centre crop, the mean over heads.

    A crop that is no multiple of the network's patches is shown to it in the nearest size that is.
    """

    size: int
    patch_size: int

    @property
    def side(self) -> int:
        """The number of patches along a side."""
        return max(1, round(self.size / self.patch_size))

    @property
    def batched(self) -> bool:
        """All crops have one size."""
        return True

    def crop(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The centre crop."""
        return crop_pixels(pixels, self.size)

    def vectors(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """The attention to each patch, row by row."""
        wanted = self.side * self.patch_size
        if wanted != self.size:
            images = functional.interpolate(
                images, size=(wanted, wanted), mode="bicubic", antialias=True
            )
        return backbone.summary(images).attention

    def width(self, backbone: Backbone) -> int:
        """One number for each patch."""
        return self.side**2

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "centre", "size": self.size, "read": "attention", "side": self.side}


@dataclass(frozen=True, eq=False)
class Occluded:
    """A centre crop whose most attended patches are black: value 0 before normalisation."""

    size: int
    reading: Reading
    ratio: float
    ranks: UInt16[np.ndarray, "M N"]
    """The place of each patch of a square grid in the order of attention, for every image."""
    reference: str
    """The digest of the network whose attention it is."""

    @property
    def hidden(self) -> int:
        """The number of black patches: k = int(n·r)."""
        return int(self.ranks.shape[1] * self.ratio)

    @property
    def batched(self) -> bool:
        """All crops have one size."""
        return True

    def crop(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The centre crop of image `index` with its own patches blacked out."""
        cropped = crop_pixels(pixels, self.size)
        black = torch.from_numpy(self.ranks[index] < self.hidden)
        side = round(self.ranks.shape[1] ** 0.5)
        # The patch that the middle of each line of pixels lies in; the grid fills the crop.
        patch = ((2 * torch.arange(self.size) + 1) * side).div(2 * self.size, rounding_mode="floor")
        return cropped.masked_fill(black.view(side, side)[patch][:, patch], 0)

    def vectors(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """What `reading` reads."""
        return self.reading(backbone, images)

    def width(self, backbone: Backbone) -> int:
        """As wide as what is read."""
        return self.reading.width(backbone)

    def describe(self) -> dict[str, Any]:
        """All that decides which pixels are black, and what is read."""
        return {
            "crop": "occluded",
            "size": self.size,
            "reading": self.reading.model_dump(),
            "ratio": self.ratio,
            "reference": self.reference,
            "ranks": hashlib.sha256(self.ranks.tobytes()).hexdigest(),
        }


def attention_ranks(attention: Float[Tensor, "M N"]) -> UInt16[np.ndarray, "M N"]:
    """The place of each patch, most attended first; of equal ones the lower number comes first."""
    if attention.shape[1] > np.iinfo(np.uint16).max:
        raise ValueError(f"{attention.shape[1]} patches are too many to be counted in 16 bits")
    places = np.empty(attention.shape, dtype=np.uint16)
    for first in range(0, len(attention), _ROWS_AT_ONCE):
        some = attention[first : first + _ROWS_AT_ONCE]
        order = some.argsort(dim=1, descending=True, stable=True).numpy()
        every = np.broadcast_to(np.arange(order.shape[1], dtype=np.uint16), order.shape)
        np.put_along_axis(places[first : first + _ROWS_AT_ONCE], order, every, axis=1)
    return places
