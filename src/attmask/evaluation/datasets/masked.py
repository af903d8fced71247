"""Images with a class for each pixel: to learn from, and to test on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from attmask.data.mask_files import LAYOUTS
from attmask.data.masks import MaskedImages, MasksConfig, PixelClasses, open_masked
from attmask.data.source import Source
from attmask.data.stores.splits import TRAIN
from attmask.data.subset import held_out, spread_evenly
from attmask.errors import UserError
from attmask.settings import setting


@dataclass(frozen=True, eq=False)
class MaskedSplit:
    """Training and test images with masks of the same classes."""

    train: MaskedImages
    test: MaskedImages
    tested: str
    """The name of the test images: val, test, or held out."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """Both, by their names."""
        return {TRAIN: self.train.source, self.tested: self.test.source}

    @property
    def classes(self) -> PixelClasses:
        """The classes of the pixels."""
        return self.train.classes


class Masked(MasksConfig):
    """Images with masks in the layouts of common data sets, and what the values of masks mean."""

    layout: ClassVar[str] = LAYOUTS

    split: Literal["auto", "val", "test"] = setting(
        "auto", "test split (auto: val if there is one, else test, else a part of train)"
    )
    holdout: float = setting(
        0.2, "share of train to test on if there is neither val nor test", gt=0, lt=1
    )
    max_train_images: int | None = setting(
        2_000, "maximum number of training images, evenly spread in file order (null: all)", ge=1
    )
    max_test_images: int | None = setting(
        2_000, "maximum number of test images, evenly spread in file order (null: all)", ge=1
    )
    channels: int | None = setting(
        None, "channels of images with an ambiguous shape (null: those of the run)", ge=1
    )

    def open(self, path: Path) -> MaskedSplit:
        """Open the training and the test images with their masks."""
        splits = open_masked(path, self, channels=self.channels)
        train, test, tested = self._divided(path, splits)
        return MaskedSplit(
            train.subset(spread_evenly(None, len(train), self.max_train_images)),
            test.subset(spread_evenly(None, len(test), self.max_test_images)),
            tested,
        )

    def _divided(
        self, path: Path, splits: Mapping[str, MaskedImages]
    ) -> tuple[MaskedImages, MaskedImages, str]:
        train = splits[TRAIN]
        others = [name for name in splits if name != TRAIN]
        if self.split != "auto" and self.split not in others:
            raise UserError(
                f"there is no split {self.split} in {path}, only {', '.join(splits)}; choose one "
                "of these"
            )
        if others:
            tested = others[0] if self.split == "auto" else self.split
            return train, splits[tested], tested
        is_tested = held_out(None, len(train), self.holdout)
        if not is_tested.any():
            raise UserError(
                f"{path} has only {len(train)} image with a mask, too few to learn from some and "
                "test on others; give at least two"
            )
        kept, tested_on = np.flatnonzero(~is_tested), np.flatnonzero(is_tested)
        return train.subset(kept), train.subset(tested_on), "held out"
