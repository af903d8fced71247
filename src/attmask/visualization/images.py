"""Which images are shown, and which part of them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import UInt8
from torch import Tensor

from attmask.data.joined import join
from attmask.data.source import Source
from attmask.data.subset import evenly_spaced
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop, Crop
from attmask.evaluation.features.short_side import ShortSide
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.predictions import pictures_of
from attmask.evaluation.requirements import check_crop

CropName = Literal["center", "whole"]
_LONGEST = 8  # times the shorter side


@dataclass(frozen=True)
class WholeImage:
    """Resizes the whole image, keeping its shape up to a patch; nothing is cut off."""

    shorter_side: int
    patch_size: int

    @property
    def size_hw(self) -> None:
        """None, because sizes differ between images."""

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The resized image."""
        height, width = pixels.shape[:2]
        if max(height, width) > _LONGEST * min(height, width):
            raise UserError(
                f"image {index} has {height} x {width} pixels, more than {_LONGEST} times as long "
                "as wide; use the crop center"
            )
        return ShortSide(self.shorter_side, self.patch_size, self.patch_size)(pixels, index)

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "whole image", **asdict(self)}


def open_shown(images: Path, split: str | None, channels: int) -> Source:
    """A picture, or all images of a data set or of one of its splits, in one order."""
    source = join(list(pictures_of(images, split, channels).values()))
    if len(source) == 0:
        raise UserError(f"{images} has no images to show; give a folder with some")
    return source


def choose(source: Source, indices: Sequence[int] | None, count: int) -> list[int]:
    """The indices asked for, or `count` evenly spread images."""
    if indices is None:
        return list(map(int, evenly_spaced(len(source), min(count, len(source)))))
    wrong = [index for index in indices if not 0 <= index < len(source)]
    if wrong or not indices:
        raise UserError(
            f"indices {wrong or 'none'} do not fit the {len(source)} images of {source.root}; "
            f"use indices from 0 to {len(source) - 1}"
        )
    return list(indices)


def crop_of(model: FrozenModel, name: CropName, image_size: int | None) -> Crop:
    """The centre, or the whole image with this shorter side; by default the network's own size."""
    check_crop(model, image_size)
    size = image_size or model.image_size
    return WholeImage(size, model.backbone.patch_size) if name == "whole" else CenterCrop(size)
