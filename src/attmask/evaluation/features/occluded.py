"""The crop with black patches, selected by the attention of a reference network."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8, UInt16
from torch import Tensor

from attmask.evaluation.features.crops import crop_pixels

_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Occluded:
    """A centre crop whose most attended patches are black (0 before normalisation)."""

    size: int
    ratio: float
    ranks: UInt16[np.ndarray, "M N"]
    """The rank of each patch of a square grid by attention, for every image; 0 is the highest."""
    reference: str
    """The digest of the reference network."""

    @property
    def hidden(self) -> int:
        """The number of black patches: k = int(n·r)."""
        return int(self.ranks.shape[1] * self.ratio)

    @property
    def size_hw(self) -> tuple[int, int]:
        """A square."""
        return self.size, self.size

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The centre crop of image `index` with its most attended patches black."""
        cropped = crop_pixels(pixels, self.size)
        black = torch.from_numpy(self.ranks[index] < self.hidden)
        side = round(self.ranks.shape[1] ** 0.5)
        # The patch of each row or column of pixels, by its centre; the grid covers the crop.
        patch = ((2 * torch.arange(self.size) + 1) * side).div(2 * self.size, rounding_mode="floor")
        return cropped.masked_fill(black.view(side, side)[patch][:, patch], 0)

    def describe(self) -> dict[str, Any]:
        """Everything that determines the crop, the ranks as a hash."""
        return {
            "crop": "occluded",
            "size": self.size,
            "ratio": self.ratio,
            "reference": self.reference,
            "ranks": hashlib.sha256(self.ranks.tobytes()).hexdigest(),
        }


def attention_ranks(attention: Float[Tensor, "M N"]) -> UInt16[np.ndarray, "M N"]:
    """The rank of each patch, most attended first; ties go to the lower patch index."""
    if attention.shape[1] > np.iinfo(np.uint16).max:
        raise ValueError(f"{attention.shape[1]} patches are too many for 16-bit ranks")
    ranks = np.empty(attention.shape, dtype=np.uint16)
    for first in range(0, len(attention), _ROWS_AT_ONCE):
        some = attention[first : first + _ROWS_AT_ONCE]
        order = some.argsort(dim=1, descending=True, stable=True).numpy()
        every = np.broadcast_to(np.arange(order.shape[1], dtype=np.uint16), order.shape)
        np.put_along_axis(ranks[first : first + _ROWS_AT_ONCE], order, every, axis=1)
    return ranks
