"""Multi-crop: two large and several small views of each image, and the batch they make.

Chance and pixels are apart: `draws` makes every random choice of a view, `cut` and `colours` carry
the choices out on the CPU, `device` the colours on a GPU.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from pydantic import Field, model_validator
from torch import Tensor

from attmask.errors import UserError
from attmask.settings import Config, setting

GLOBAL_VIEWS = 2
LARGEST_CROP = 8192
_LARGEST_SIGMA = 100.0  # in pixels; a wider blur leaves one colour and takes memory

Probability = Annotated[float, Field(ge=0, le=1)]


class ViewsConfig(Config):
    """Number, size and augmentation of the views of an image."""

    global_size: int = setting(
        224, "side of the two global crops, in pixels", paper="224", ge=1, le=LARGEST_CROP
    )
    local_size: int = setting(
        96, "side of the local crops, in pixels", paper="96", ge=1, le=LARGEST_CROP
    )
    local_crops: int = setting(
        10, "number of local crops per image", paper="10; 6 on 20 % of ImageNet", ge=0, le=1000
    )
    split_scale: float = setting(
        0.25,
        "s: global crops cover (s, 1) of the image's area, local crops (local_scale_min, s)",
        paper="0.25 iBOT, 0.4 DINO, 0.32 for 300 epochs",
        gt=0,
        le=1,
    )
    local_scale_min: float = setting(
        0.05, "smallest fraction of the image's area in a local crop", paper="0.05", gt=0, le=1
    )
    aspect: tuple[float, float] = setting(
        (3 / 4, 4 / 3), "smallest and largest width / height of a crop", paper="3/4, 4/3"
    )
    flip_probability: Probability = setting(0.5, "probability of a horizontal flip", paper="0.5")
    jitter_probability: Probability = setting(0.8, "probability of colour jitter", paper="0.8")
    brightness: float = setting(0.4, "largest relative change of brightness", paper="0.4", ge=0)
    contrast: float = setting(0.4, "largest relative change of contrast", paper="0.4", ge=0)
    saturation: float = setting(0.2, "largest relative change of saturation", paper="0.2", ge=0)
    hue: float = setting(
        0.1, "largest rotation of the hue, as a fraction of the circle", paper="0.1", ge=0, le=0.5
    )
    grey_probability: Probability = setting(0.2, "probability of conversion to grey", paper="0.2")
    blur_probabilities: tuple[Probability, Probability, Probability] = setting(
        (1.0, 0.1, 0.5),
        "probability of blur: first global crop, second global crop, local crops",
        paper="1, 0.1, 0.5",
    )
    blur_sigma: tuple[float, float] = setting(
        (0.1, 2.0), "smallest and largest std of the blur, in pixels", paper="0.1, 2"
    )
    solarise_probability: Probability = setting(
        0.2, "probability of solarisation of the second global crop", paper="0.2"
    )
    colours_on: Literal["workers", "device"] = setting(
        "workers",
        "where colours are augmented: by the workers, or on the device (relieves the CPU)",
    )

    @model_validator(mode="after")
    def _ranges_are_in_order(self) -> "ViewsConfig":
        if self.local_crops and self.local_scale_min > self.split_scale:
            raise ValueError(
                f"views.local_scale_min={self.local_scale_min} is above views.split_scale="
                f"{self.split_scale}; local crops cover (local_scale_min, split_scale) of the image"
            )
        if not 0 < self.aspect[0] <= self.aspect[1]:
            raise ValueError(f"views.aspect {self.aspect} must be (least, greatest), both above 0")
        if not 0 <= self.blur_sigma[0] <= self.blur_sigma[1] <= _LARGEST_SIGMA:
            raise ValueError(
                f"views.blur_sigma {self.blur_sigma} must be (least, greatest), from 0 to "
                f"{_LARGEST_SIGMA:g}"
            )
        return self

    @property
    def count(self) -> int:
        """The number of views per image, global and local."""
        return GLOBAL_VIEWS + self.local_crops

    @property
    def time_factor(self) -> float:
        """The paper's gamma: the cost of a step against one pass over one global view."""
        return GLOBAL_VIEWS + self.local_crops * (self.local_size / self.global_size) ** 2


@dataclass(frozen=True)
class Views:
    """The views of a batch: bytes as they are cut, floats once they are normalised.

    `first_image` is the position of the first image in the batch of a step: masks and drop path
    are drawn by position, so that a micro-batch gets the same draws as the full batch.
    """

    globals: UInt8[Tensor, "2 B C size size"] | Float[Tensor, "2 B C size size"]
    locals: UInt8[Tensor, "V B C small small"] | Float[Tensor, "V B C small small"]
    first_image: int = 0

    @property
    def images(self) -> Int64[np.ndarray, " B"]:
        """The positions of the images in the batch of the step."""
        return np.arange(self.first_image, self.first_image + self.globals.shape[1])

    def to(self, device: torch.device | str) -> "Views":
        """The same views on a device."""
        return self._of(
            self.globals.to(device, non_blocking=True), self.locals.to(device, non_blocking=True)
        )

    def pin_memory(self) -> "Views":
        """The same views in page-locked memory, from which copies to a GPU need no waiting."""
        return self._of(self.globals.pin_memory(), self.locals.pin_memory())

    def normalise(self, mean: Sequence[float], std: Sequence[float]) -> "Views":
        """Bytes to floats of about zero mean and unit std: (x / 255 - mean) / std."""
        assert self.globals.dtype == torch.uint8, "these views are normalised already"
        device = self.globals.device
        shape = (-1, 1, 1)
        divisor = torch.tensor(std, device=device).view(shape)
        scale = 1 / (255 * divisor)
        shift = -torch.tensor(mean, device=device).view(shape) / divisor
        # Not `addcmul` of bytes and floats, which is ten times as slow on a CPU.
        return self._of(
            self.globals.float().mul_(scale).add_(shift),
            self.locals.float().mul_(scale).add_(shift),
        )

    def split(self, parts: int) -> list["Views"]:
        """Equal micro-batches, in the order of the images."""
        batch = self.globals.shape[1]
        if parts < 1 or batch % parts:
            raise UserError(
                f"a batch of {batch} images cannot be split into {parts} equal parts; "
                f"use a number of parts that divides {batch}"
            )
        pairs = zip(self.globals.chunk(parts, 1), self.locals.chunk(parts, 1), strict=True)
        first = range(self.first_image, self.first_image + batch, batch // parts)
        return [Views(*pair, first_image=i) for pair, i in zip(pairs, first, strict=True)]

    def _of(self, large: Tensor, small: Tensor) -> "Views":
        return replace(self, globals=large, locals=small)
