"""Crops: the 8-bit pixels of an image that the network gets as input."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from attmask.data.cut import cut
from attmask.data.draws import draw
from attmask.data.views import ViewsConfig

Resampling = Literal["bicubic", "bilinear"]
RESIZE_TO_CROP = 256 / 224  # the evaluation protocol of ImageNet: resize to 256, keep 224
_LONGEST = 16  # times the shorter side; pixels further out would be resized and then cropped away


@runtime_checkable
class Crop(Protocol):
    """A function from an image to the pixels of the crop.

    It is copied to worker processes, so it must be cheap to pickle.
    """

    @property
    def size_hw(self) -> tuple[int, int] | None:
        """Height and width of every crop; None if they differ between images."""

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The crop of image `index` of a source."""

    def describe(self) -> dict[str, Any]:
        """Everything that determines the crop, as JSON."""


@dataclass(frozen=True)
class CenterCrop:
    """Resizes the shorter side to 256/224 of the crop size (bicubic) and crops the centre."""

    size: int
    flipped: bool = False

    @property
    def size_hw(self) -> tuple[int, int]:
        """A square."""
        return self.size, self.size

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The centre crop, horizontally flipped if `flipped` is set."""
        cropped = crop_pixels(pixels, self.size)
        return cropped.flip(-1) if self.flipped else cropped

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "center", **asdict(self)}


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random resized crop with random flip, drawn by counter; colours are not changed.

    The same seed, epoch, view and image always give the same crop. `bicubic` crops are those of the
    global crops of pre-training, `bilinear` ones those of torchvision's RandomResizedCrop.
    """

    size: int
    scale_min: float
    seed: int = 0
    epoch: int = 0
    view: int = 0
    resampling: Resampling = "bicubic"

    @property
    def size_hw(self) -> tuple[int, int]:
        """A square."""
        return self.size, self.size

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The random crop of image `index`."""
        size_wh = (pixels.shape[1], pixels.shape[0])
        views = ViewsConfig(global_size=self.size, split_scale=self.scale_min, local_crops=0)
        drawn = draw(views, size_wh, seed=self.seed, epoch=self.epoch, sample=index, view=self.view)
        if self.resampling == "bilinear":
            left, top, right, bottom = drawn.box
            cropped = resized(pixels[top:bottom, left:right], (self.size, self.size))
        else:
            # Some decoders return read-only pixels, of which PyTorch warns.
            own = np.require(pixels, requirements="W")
            cropped = torch.from_numpy(cut(own, size_wh, drawn)).permute(2, 0, 1)
        return (cropped.flip(-1) if drawn.flip else cropped).contiguous()

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "random resized", **asdict(self)}


def center_crop(
    image: Image.Image, size: int, resampling: Image.Resampling = Image.Resampling.BICUBIC
) -> Image.Image:
    """Resize the shorter side to 256/224 of the crop size and crop the centre."""
    shorter = round(size * RESIZE_TO_CROP)
    least = min(image.size)
    if max(image.size) > _LONGEST * least:  # 20,000 x 2 pixels would become 2.6 million x 256
        kept_wh = [min(side, _LONGEST * least) for side in image.size]
        left, top = ((side - kept) // 2 for side, kept in zip(image.size, kept_wh, strict=True))
        image = image.crop((left, top, left + kept_wh[0], top + kept_wh[1]))
    width, height = (shorter * side // least for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), resampling)
    return resized.crop((left, top, left + size, top + size))


def crop_pixels(pixels: UInt8[np.ndarray, "H W C"], size: int) -> UInt8[Tensor, "C size size"]:
    """The centre crop of an image with any number of channels, channels first."""
    return torch.cat([as_tensor(center_crop(plane, size)) for plane in planes(pixels)])


def resized(
    pixels: UInt8[np.ndarray, "H W C"], size_hw: tuple[int, int]
) -> UInt8[Tensor, "C height width"]:
    """Resize an image, bilinear with antialiasing as in torchvision, channels first."""
    bilinear, size_wh = Image.Resampling.BILINEAR, size_hw[::-1]
    return torch.cat([as_tensor(plane.resize(size_wh, bilinear)) for plane in planes(pixels)])


def planes(pixels: UInt8[np.ndarray, "H W C"]) -> list[Image.Image]:
    """Each channel as a PIL image, because PIL supports at most four channels."""
    return [Image.fromarray(np.ascontiguousarray(plane)) for plane in pixels.transpose(2, 0, 1)]


def as_tensor(image: Image.Image) -> UInt8[Tensor, "C H W"]:
    """The pixels of an image, channels first."""
    pixels = np.array(image, dtype=np.uint8)
    return torch.from_numpy(pixels.reshape(image.height, image.width, -1)).permute(2, 0, 1)
