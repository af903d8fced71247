"""Labelled training and test images in any format that attmask reads."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.data.subset import first_per_class, first_percent
from attmask.errors import UserError
from attmask.settings import Config, setting


@dataclass(frozen=True, eq=False)
class Split:
    """Training and test images with the same classes."""

    train: Source
    test: Source
    tested: str = "test"
    """The name of the test split: val or test."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """Both, by the names of their splits."""
        return {"train": self.train, self.tested: self.test}

    @property
    def classes(self) -> int:
        """The number of classes, including those without an image."""
        return len(self.train.classes)

    def missing_in_train(self) -> list[str]:
        """The tested classes without a training image."""
        return [
            self.train.classes[c]
            for c in sorted(set(_numbers(self.test)) - set(_numbers(self.train)))
        ]


class Labelled(Config):
    """Any images that `pretrain` reads, with labels and a test split."""

    layout: ClassVar[str] = (
        "train/CLASS/*.jpg and val/CLASS/*.jpg (or test/), or a list, shards or arrays with labels "
        "and splits"
    )

    split: Literal["auto", "val", "test"] = setting(
        "auto", "test split (auto: val if there is one, else test)"
    )
    per_class: int | None = setting(
        None,
        "train on the first n images of each class, in file order (null: all)",
        paper="260 for networks pre-trained on 20 %",
        ge=1,
    )
    percent: float | None = setting(
        None, "train on the first n per cent of each class (null: all)", gt=0, le=100
    )

    channels: int | None = setting(
        None,
        "channels of arrays with an ambiguous shape (null: those of the run)",
        ge=1,
    )

    def open(self, path: Path) -> Split:
        """Open the training and the test images."""
        images = open_images(path, channels=self.channels)
        wanted = f"wanted {self.layout}"
        tested = images.split_to_test(self.split)
        if tested is None:
            raise UserError(f"{path} has no test images; {wanted}")
        train, test = images.train, images.splits[tested]
        for name, source in (("train", train), (tested, test)):
            if source.labels is None:
                raise UserError(f"the {name} images of {path} have no labels; {wanted}")
        # Classes that only the test images have come last, so the other indices do not change.
        train = replace(train, classes=test.classes)
        if self.per_class is not None:
            train = first_per_class(train, self.per_class)
        if self.percent is not None:
            train = first_percent(train, self.percent)
        return Split(train, test, tested)


def _numbers(source: Source) -> list[int]:
    return [] if source.labels is None else np.unique(source.labels).tolist()
