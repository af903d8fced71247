"""Any images, with or without labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.data.subset import spread_evenly
from attmask.errors import UserError
from attmask.settings import Config, setting


@dataclass(frozen=True, eq=False)
class Shown:
    """Images to evaluate on."""

    images: Source
    split: str = "images"
    """The name of their split."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """The images by the name of their split."""
        return {self.split: self.images}


class Pictures(Config):
    """Any images that `pretrain` reads: the held-out images if there are any, else all."""

    layout: ClassVar[str] = (
        "any images that pretrain reads; of train/ and val/ (or test/) the held-out ones"
    )

    split: Literal["auto", "val", "test", "train"] = setting(
        "auto", "split to use (auto: val if there is one, else test, else train)"
    )
    channels: int | None = setting(
        None,
        "channels of arrays with an ambiguous shape (null: those of the run)",
        ge=1,
    )
    max_images: int | None = setting(
        10_000, "maximum number of images, evenly spread in file order (null: all)", ge=1
    )

    def open(self, path: Path) -> Shown:
        """Open the images; at least one is needed."""
        found = open_images(path, channels=self.channels)
        split = found.split_to_test(self.split) or "train"
        images = found.splits[split]
        if not len(images):
            raise UserError(f"{path} has no images; wanted {self.layout}")
        if self.max_images is not None and self.max_images < len(images):
            # Regardless of classes: label-free metrics keep the distribution of the images.
            images = images.subset(spread_evenly(None, len(images), self.max_images))
        return Shown(images, split)
