"""Labelled images to learn from and others to test on, wherever `attmask` reads images from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.settings import Config, setting


@dataclass(frozen=True, eq=False)
class Split:
    """Train and test images with the same classes."""

    train: Source
    test: Source

    @property
    def sources(self) -> Mapping[str, Source]:
        """Both."""
        return {"train": self.train, "test": self.test}

    @property
    def classes(self) -> int:
        """The number of classes, also of those without an image."""
        return len(self.train.classes)

    def missing_in_train(self) -> list[str]:
        """The classes that are tested but have no image to learn from."""
        return [
            self.train.classes[c]
            for c in sorted(set(_numbers(self.test)) - set(_numbers(self.train)))
        ]


class Labelled(Config):
    """Any images that pretrain reads, with labels: `train/` and `val/`, or a list with splits."""

    layout: ClassVar[str] = (
        "train/CLASS/*.jpg and val/CLASS/*.jpg, or a list, shards or arrays with labels and a split"
    )

    per_class: int | None = setting(
        None,
        "learn from the first n images of each class, in file order (null: all)",
        paper="260 for models pre-trained on 20 %",
        ge=1,
    )
    percent: float | None = setting(
        None, "learn from the first per cent of each class (null: all)", gt=0, le=100
    )

    def open(self, path: Path) -> Split:
        """Both parts, or what is missing."""
        images = open_images(path)
        wanted = f"wanted {self.layout}"
        if images.val is None:
            raise UserError(f"{path} has no images to test on; {wanted}")
        if images.train.labels is None or images.val.labels is None:
            raise UserError(f"the images of {path} have no labels; {wanted}")
        train = images.train
        if self.per_class is not None:
            train = train.first_per_class(self.per_class)
        if self.percent is not None:
            train = train.first_percent(self.percent)
        return Split(train, images.val)


def _numbers(source: Source) -> list[int]:
    return [] if source.labels is None else np.unique(source.labels).tolist()
