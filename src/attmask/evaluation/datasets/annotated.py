"""Annotated images to measure a trained network on: with masks of classes, or with objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, TypeVar

from attmask.data.coco import BoxedImages, open_boxed
from attmask.data.coco_layout import LAYOUTS as COCO_LAYOUTS
from attmask.data.mask_files import LAYOUTS
from attmask.data.masks import MaskedImages, MasksConfig, open_masked
from attmask.data.source import Source
from attmask.data.stores.splits import TRAIN
from attmask.data.subset import spread_evenly
from attmask.errors import UserError
from attmask.settings import Config, setting

Split = Literal["auto", "val", "test", "train"]
Annotated = TypeVar("Annotated", MaskedImages, BoxedImages)

_WHICH = "split to use (auto: val if there is one, else test, else train)"
_MOST = "maximum number of images, evenly spread in file order (null: all)"


@dataclass(frozen=True, eq=False)
class Segments:
    """Images with a class for each pixel."""

    images: MaskedImages
    split: str

    @property
    def sources(self) -> Mapping[str, Source]:
        """The images by the name of their split."""
        return {self.split: self.images.source}


@dataclass(frozen=True, eq=False)
class Objects:
    """Images with boxes and masks of objects."""

    images: BoxedImages
    split: str

    @property
    def sources(self) -> Mapping[str, Source]:
        """The images by the name of their split."""
        return {self.split: self.images.source}


class WithSegments(MasksConfig):
    """Images with masks in the layouts of common data sets, and what the values of masks mean."""

    layout: ClassVar[str] = LAYOUTS

    split: Split = setting("auto", _WHICH)
    max_images: int | None = setting(None, _MOST, ge=1)
    channels: int | None = setting(
        None, "channels of images with an ambiguous shape (null: those of the run)", ge=1
    )

    def open(self, path: Path) -> Segments:
        """Open the images of the split with their masks."""
        splits = open_masked(path, self, channels=self.channels)
        return Segments(*_chosen(path, splits, self.split, self.max_images))


class WithBoxes(Config):
    """Images with annotations in COCO's format."""

    layout: ClassVar[str] = COCO_LAYOUTS

    split: Split = setting("auto", _WHICH)
    max_images: int | None = setting(None, _MOST, ge=1)

    def open(self, path: Path) -> Objects:
        """Open the images of the split with their objects."""
        return Objects(*_chosen(path, open_boxed(path), self.split, self.max_images))


def _chosen(
    path: Path, splits: Mapping[str, Annotated], asked: Split, most: int | None
) -> tuple[Annotated, str]:
    others = [name for name in splits if name != TRAIN]
    split = (others or [TRAIN])[0] if asked == "auto" else asked
    if split not in splits:
        raise UserError(
            f"there is no split {split} in {path}, only {', '.join(splits)}; choose one of these"
        )
    images = splits[split]
    return images.subset(spread_evenly(None, len(images), most)), split
