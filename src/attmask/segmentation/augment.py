"""Random changes of a training image and its mask, drawn by counter.

The steps, their order and their draws are those of mmsegmentation's pipeline for ADE20K: resize,
crop, flip, photometric distortion, normalisation, padding. Images are resized bilinearly without
antialiasing, as there; labels take the nearest pixel, measured from pixel centre to pixel centre.
"""

import cv2
import numpy as np
import torch
from jaxtyping import Float, Float32, Int16, UInt8
from pydantic import field_validator
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.masks import IGNORED
from attmask.data.resize import fitted_hw, resized_labels, resized_pixels
from attmask.segmentation.photometric import distort
from attmask.settings import Config, setting

_LONG_TO_SHORT = 4  # 2048 to 512
_TRIES = 10

Pixels = UInt8[np.ndarray, "H W C"]
Labels = Int16[np.ndarray, "H W"]


class SegmentAugmentConfig(Config):
    """The random changes of training images and their masks."""

    size: int | None = setting(
        None, "side of the crops in pixels (null: the network's own)", paper="512", ge=1, le=4096
    )
    short_side: int | None = setting(
        None,
        "short side that images are resized to before scaling (null: that of the crops)",
        paper="512",
        ge=1,
        le=16384,
    )
    long_side: int | None = setting(
        None,
        "largest long side before scaling (null: four times the short side)",
        paper="2048",
        ge=1,
        le=65536,
    )
    scale: tuple[float, float] = setting(
        (0.5, 2.0), "random factor of both sides: from, to ([1, 1]: none)", paper="[0.5, 2]"
    )
    most_of_one_class: float = setting(
        0.75,
        "crops are drawn again, up to 10 times, if more of their pixels are of one class "
        "(1: never)",
        paper="0.75",
        gt=0,
        le=1,
    )
    flip: float = setting(0.5, "probability of a horizontal flip", paper="0.5", ge=0, le=1)
    photometric: float = setting(
        0.5,
        "probability of each change of brightness, contrast, saturation and hue, of colour images",
        paper="0.5",
        ge=0,
        le=1,
    )

    def long_short(self, size: int) -> tuple[int, int]:
        """The long and the short side that images fit before scaling, for crops of a size."""
        short = self.short_side or size
        return self.long_side or _LONG_TO_SHORT * short, short

    @field_validator("scale")
    @classmethod
    def _rising(cls, scale: tuple[float, float]) -> tuple[float, float]:
        if not 0.01 <= scale[0] <= scale[1] <= 100:
            raise ValueError(f"{list(scale)} does not rise from 0.01 to 100; use e.g. [0.5, 2]")
        return scale


class SegmentAugment:
    """Resizes, crops, flips, recolours, normalises and pads; a number always gives the same."""

    def __init__(self, config: SegmentAugmentConfig, data: DataConfig, *, size: int) -> None:
        self.config, self.size = config, size
        self.long_short = config.long_short(size)
        self._normal = _normalised_values(data)

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], labels: Int16[np.ndarray, "H W"], number: int
    ) -> tuple[Float[Tensor, "C size size"], Int16[Tensor, "size size"]]:
        """The normalised crop and its labels, with the changes that `number` draws."""
        config, draw = self.config, np.random.default_rng(number)
        factor = float(draw.uniform(*config.scale))
        long, short = (int(side * factor) for side in self.long_short)
        size_hw = fitted_hw((labels.shape[0], labels.shape[1]), (long, short))
        pixels, labels = resized_pixels(pixels, size_hw), resized_labels(labels, size_hw)
        box = self._box(labels, draw)
        pixels, labels = pixels[box], labels[box]
        if draw.random() < config.flip:
            pixels, labels = pixels[:, ::-1], labels[:, ::-1]
        pixels = np.ascontiguousarray(pixels)
        if pixels.shape[2] == 3 and config.photometric > 0:
            pixels = distort(pixels, draw, config.photometric)
        return self._padded(pixels, labels)

    def _box(self, labels: Labels, draw: np.random.Generator) -> tuple[slice, slice]:
        """A crop at a random place, of several classes if a few attempts find one."""
        box = self._any_box(labels, draw)
        if self.config.most_of_one_class < 1:
            for _ in range(_TRIES):
                if self._is_varied(labels[box]):
                    break
                box = self._any_box(labels, draw)
        return box

    def _any_box(self, labels: Labels, draw: np.random.Generator) -> tuple[slice, slice]:
        top, left = (int(draw.integers(0, max(0, side - self.size) + 1)) for side in labels.shape)
        return slice(top, top + self.size), slice(left, left + self.size)

    def _is_varied(self, labels: Labels) -> bool:
        pixels = np.bincount(labels.ravel() - IGNORED)[1:]
        most = self.config.most_of_one_class
        return int(np.count_nonzero(pixels)) > 1 and bool(pixels.max() < most * pixels.sum())

    def _padded(
        self, pixels: Pixels, labels: Labels
    ) -> tuple[Float[Tensor, "C size size"], Int16[Tensor, "size size"]]:
        """Normalised and padded at the right and bottom: 0 is the mean, and has no class."""
        height, width, channels = pixels.shape
        image = np.zeros((channels, self.size, self.size), dtype=np.float32)
        for channel, table in enumerate(self._normal):
            plane = np.ascontiguousarray(pixels[:, :, channel])
            image[channel, :height, :width] = cv2.LUT(plane, table)
        padded = np.full((self.size, self.size), IGNORED, dtype=np.int16)
        padded[:height, :width] = labels
        return torch.from_numpy(image), torch.from_numpy(padded)


def _normalised_values(data: DataConfig) -> Float32[np.ndarray, "C 256"]:
    """What each 8-bit value of each channel becomes."""
    mean, std = (
        np.broadcast_to(np.asarray(values), (data.channels,)) for values in (data.mean, data.std)
    )
    values = (np.arange(256) / 255 - mean[:, None]) / std[:, None]
    return np.asarray(values, dtype=np.float32)
