"""Any images, with labels or without, to look at what a network makes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.features import spread_evenly
from attmask.settings import Config, setting


@dataclass(frozen=True, eq=False)
class Shown:
    """Images that a network is shown."""

    images: Source

    @property
    def sources(self) -> Mapping[str, Source]:
        """All of them."""
        return {"images": self.images}


class Pictures(Config):
    """Any images that pretrain reads: those to validate on if there are any, else all."""

    layout: ClassVar[str] = "any images that pretrain reads; of train/ and val/ the images of val/"

    max_images: int | None = setting(
        10_000, "at most so many images, evenly spread in file order (null: all)", ge=1
    )

    def open(self, path: Path) -> Shown:
        """The images, or that there are none."""
        found = open_images(path)
        images = found.val or found.train
        if not len(images):
            raise UserError(f"{path} has no images to look at; wanted {self.layout}")
        if self.max_images is None or self.max_images >= len(images):
            return Shown(images)
        # Without regard to classes: the measures are of images as they come.
        return Shown(images.subset(spread_evenly(None, len(images), self.max_images)))
