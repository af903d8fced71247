"""Random changes of an image together with the boxes and masks of its objects, drawn by counter."""

import random
from dataclasses import dataclass

import cv2
import numpy as np
import torch
from jaxtyping import Float, Float32, Int64, UInt8
from pydantic import field_validator, model_validator
from torch import Tensor

from attmask.data.coco import Annotated
from attmask.data.config import DataConfig
from attmask.data.resize import fitted_hw, resized_pixels
from attmask.models.detection.instances import Instances
from attmask.settings import Config, setting


class DetectAugmentConfig(Config):
    """The random changes of training images, as in DETR and iBOT."""

    sizes: tuple[int, ...] = setting(
        tuple(range(480, 801, 32)),
        "lengths of the shorter side in pixels, of which one is drawn",
        paper="480 to 800 in steps of 32",
    )
    longest: int = setting(
        1333, "the most pixels of the longer side", paper="1333", ge=1, le=1 << 14
    )
    flip: float = setting(0.5, "probability of a horizontal flip", paper="0.5", ge=0, le=1)
    crop: bool = setting(
        True,
        "resize and crop every second image before it is resized to `sizes`",
        paper="false, iBOT: true",
    )
    crop_sizes: tuple[int, ...] = setting(
        (400, 500, 600), "lengths of the shorter side before the crop", paper="[400, 500, 600]"
    )
    crop_range: tuple[int, int] = setting(
        (384, 600), "height and width of the crop: from, to", paper="[384, 600]"
    )

    @field_validator("sizes", "crop_sizes", "crop_range")
    @classmethod
    def _lengths(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if not lengths or not all(1 <= length <= 1 << 14 for length in lengths):
            raise ValueError(f"{list(lengths)} are no lengths in pixels; use 1 to {1 << 14}")
        return lengths

    @model_validator(mode="after")
    def _fits(self) -> "DetectAugmentConfig":
        if self.crop_range[0] > self.crop_range[1]:
            raise ValueError(f"crop_range {list(self.crop_range)} is reversed; use [from, to]")
        if max(self.sizes) > self.longest:
            raise ValueError(
                f"sizes has {max(self.sizes)}, but the longer side may have {self.longest} pixels; "
                "raise longest"
            )
        return self


class DetectAugment:
    """Flips, resizes, crops and normalises an image and its objects; the same number always gives
    the same.

    Crowds are left out, because they are not learned. An object stays as long as its box has an
    area in the crop; a crop without any object is kept.
    """

    def __init__(self, config: DetectAugmentConfig, data: DataConfig) -> None:
        self.config, self.data = config, data

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], objects: Annotated, number: int
    ) -> tuple[Float[Tensor, "C height width"], Instances]:
        """The normalised image and its objects, with the changes that `number` draws."""
        config, draw = self.config, random.Random(number)
        seen = _Seen.of(pixels, objects.chosen(~objects.is_crowd))
        if draw.random() < config.flip:
            seen = seen.flipped()
        if config.crop and draw.random() < 0.5:
            seen = seen.fitted(config.longest, draw.choice(config.crop_sizes))
            seen = seen.cropped(*_window(seen.size_hw, config.crop_range, draw))
        seen = seen.fitted(config.longest, draw.choice(config.sizes))
        truth = Instances(
            torch.from_numpy(seen.boxes),
            torch.from_numpy(seen.labels),
            torch.from_numpy(np.ascontiguousarray(seen.masks)),
            seen.size_hw,
        )
        return normalised(seen.pixels, self.data), truth


@dataclass(frozen=True, eq=False)
class _Seen:
    """What is shown: pixels with the objects in them."""

    pixels: UInt8[np.ndarray, "H W C"]
    boxes: Float32[np.ndarray, "n 4"]
    labels: Int64[np.ndarray, " n"]
    masks: UInt8[np.ndarray, "n H W"]

    @classmethod
    def of(cls, pixels: UInt8[np.ndarray, "H W C"], objects: Annotated) -> "_Seen":
        return cls(pixels, objects.boxes, objects.labels, objects.masks())

    @property
    def size_hw(self) -> tuple[int, int]:
        height, width = self.pixels.shape[:2]
        return height, width

    def flipped(self) -> "_Seen":
        """Left and right change places."""
        x1, y1, x2, y2 = self.boxes.T
        width = np.float32(self.pixels.shape[1])
        boxes = np.stack([width - x2, y1, width - x1, y2], axis=1)
        return _Seen(self.pixels[:, ::-1], boxes, self.labels, self.masks[:, :, ::-1])

    def fitted(self, longest: int, shorter: int) -> "_Seen":
        """In the size with this shorter side, or less where the longer one would be too long."""
        return self.resized(fitted_hw(self.size_hw, (longest, min(longest, shorter))))

    def resized(self, size_hw: tuple[int, int]) -> "_Seen":
        """Boxes are stretched as the image is; of masks the nearest pixel is taken."""
        (height, width), (was_high, was_wide) = size_hw, self.size_hw
        stretch = np.array([width / was_wide, height / was_high] * 2, dtype=np.float32)
        masks = np.empty((len(self.masks), *size_hw), dtype=np.uint8)
        for old, new in zip(self.masks, masks, strict=True):
            nearest = cv2.INTER_NEAREST_EXACT
            cv2.resize(np.ascontiguousarray(old), (width, height), dst=new, interpolation=nearest)
        limits = np.array([width, height] * 2, dtype=np.float32)  # that rounding may exceed
        boxes = np.clip(self.boxes * stretch, 0, limits)
        return _Seen(resized_pixels(self.pixels, size_hw), boxes, self.labels, masks)

    def cropped(self, rows: slice, columns: slice) -> "_Seen":
        """The objects whose box has an area in the window."""
        corner = np.array([columns.start, rows.start] * 2, dtype=np.float32)
        size = [columns.stop - columns.start, rows.stop - rows.start] * 2
        boxes = np.clip(self.boxes - corner, 0, np.array(size, dtype=np.float32))
        kept = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        masks = self.masks[kept, rows, columns]
        return _Seen(self.pixels[rows, columns], boxes[kept], self.labels[kept], masks)


def normalised(pixels: UInt8[np.ndarray, "H W C"], data: DataConfig) -> Float[Tensor, "C H W"]:
    """Values in 0..1 less the mean, divided by the std of each channel."""
    values = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))).float() / 255
    mean, std = (torch.tensor(each).view(-1, 1, 1) for each in (data.mean, data.std))
    return (values - mean) / std


def _window(
    size_hw: tuple[int, int], lengths: tuple[int, int], draw: random.Random
) -> tuple[slice, slice]:
    """A window of random height, width and place; no larger than the image."""
    slices = []
    for side in size_hw:
        length = draw.randint(min(side, lengths[0]), min(side, lengths[1]))
        start = draw.randint(0, side - length)
        slices.append(slice(start, start + length))
    return slices[0], slices[1]
