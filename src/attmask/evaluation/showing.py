"""How whole images are shown to a network of dense prediction."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.resize import fitted_hw, resized_pixels


@dataclass(frozen=True)
class Showing:
    """The longer and shorter side that images are resized to fit, and the scaling of pixels."""

    data: DataConfig
    long_short: tuple[int, int]

    def __call__(self, pixels: UInt8[np.ndarray, "H W C"]) -> UInt8[Tensor, "C h w"]:
        """An image in the size in which it is shown."""
        height, width = pixels.shape[:2]
        small = resized_pixels(pixels, fitted_hw((height, width), self.long_short))
        return torch.from_numpy(np.ascontiguousarray(small.transpose(2, 0, 1)))
