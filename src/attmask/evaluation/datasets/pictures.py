"""Any images, with labels or without, to look at what a network makes of them."""

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
    """Images that a network is shown."""

    images: Source
    split: str = "images"
    """The split that they are of."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """All of them, by the name of their split."""
        return {self.split: self.images}


class Pictures(Config):
    """Any images that pretrain reads: those that are held out if there are any, else all."""

    layout: ClassVar[str] = (
        "any images that pretrain reads; of train/ and val/ (or test/) those that are held out"
    )

    split: Literal["auto", "val", "test", "train"] = setting(
        "auto", "the split that is shown (auto: val where there is one, else test, else train)"
    )
    channels: int | None = setting(
        None,
        "channels of arrays whose shape can be read in two ways (null: as a run was trained)",
        ge=1,
    )
    max_images: int | None = setting(
        10_000, "at most so many images, evenly spread in file order (null: all)", ge=1
    )

    def open(self, path: Path) -> Shown:
        """The images, or that there are none."""
        found = open_images(path, channels=self.channels)
        split = found.split_to_test(self.split) or "train"
        images = found.splits[split]
        if not len(images):
            raise UserError(f"{path} has no images to look at; wanted {self.layout}")
        if self.max_images is not None and self.max_images < len(images):
            # Without regard to classes: the measures are of images as they come.
            images = images.subset(spread_evenly(None, len(images), self.max_images))
        return Shown(images, split)
