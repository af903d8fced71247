"""The crop of dense tasks: the whole image, squeezed into a square."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from attmask.evaluation.features.crops import resized


@dataclass(frozen=True)
class Squeezed:
    """Resizes the whole image to a square (bilinear), whatever its shape; nothing is cut off."""

    size: int

    @property
    def size_hw(self) -> tuple[int, int]:
        """A square."""
        return self.size, self.size

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The resized image."""
        return resized(pixels, self.size_hw)

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "squeezed", **asdict(self)}
