"""Images with masks: a class for each pixel, or none."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int16
from pydantic import field_validator, model_validator

from attmask.data.class_names import list_values, names_of
from attmask.data.joined import join
from attmask.data.mask_files import TRIMAPS, VALUES, find_masks, read_values
from attmask.data.source import Source
from attmask.data.stores.splits import TRAIN
from attmask.errors import UserError
from attmask.settings import Config, setting
from attmask.wording import agree, counted

log = logging.getLogger(__name__)

IGNORED = -1
"""The label of pixels without a class."""
_UNKNOWN = -2
_MOST_CLASSES = (1 << 15) - 1  # labels have 16 bits, of which one is the sign

_OBJECT, _BACKGROUND, _BORDER = 1, 2, 3  # of trimaps
_OF_TRIMAPS = ("object", "background")


class MasksConfig(Config):
    """What the values of mask files mean."""

    ignored: tuple[int, ...] = setting(
        (255,), "values of pixels without a class, which are neither trained on nor measured"
    )
    first: int = setting(
        0,
        "value of the first class; pixels of lower values have no class",
        paper="1 for ADE20K",
        ge=0,
        lt=VALUES,
    )
    names: tuple[str, ...] = setting(
        (),
        "names of the classes in the order of their values (empty: from the data, or the values)",
    )
    classes: int | None = setting(
        None,
        "number of classes, with consecutive values (null: every value in the training masks)",
        paper="150 for ADE20K",
        ge=2,
        le=_MOST_CLASSES,
    )

    @field_validator("ignored")
    @classmethod
    def _stored_values(cls, ignored: tuple[int, ...]) -> tuple[int, ...]:
        if wrong := [value for value in ignored if not 0 <= value < VALUES]:
            raise ValueError(f"a mask cannot have the value {wrong[0]}; use 0 to {VALUES - 1}")
        return ignored

    @model_validator(mode="after")
    def _classes_are_not_ignored(self) -> "MasksConfig":
        values = range(self.first, self.first + (self.classes or 0))
        if both := [value for value in self.ignored if value in values]:
            raise ValueError(
                f"masks.ignored has {both[0]}, which is one of the {self.classes} classes from "
                f"{self.first} on; change masks.ignored, masks.first or masks.classes"
            )
        if self.names and self.classes not in (None, len(self.names)):
            raise ValueError(
                f"masks.names has {counted(len(self.names), 'name')} for masks.classes="
                f"{self.classes}; give one for each class"
            )
        return self


@dataclass(frozen=True, eq=False)
class PixelClasses:
    """The classes of pixels: their names, and the values that masks store for them."""

    names: tuple[str, ...]
    values: tuple[int, ...]
    """The stored value of each class, in ascending order."""
    ignored: tuple[int, ...] = (255,)
    first: int = 0
    """Pixels of lower values have no class."""

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def label_of_value(self) -> Int16[np.ndarray, " values"]:
        """The class of each value that a mask can store, IGNORED or _UNKNOWN."""
        labels = np.full(VALUES, _UNKNOWN, dtype=np.int16)
        labels[: self.first] = IGNORED
        labels[list(self.ignored)] = IGNORED
        labels[list(self.values)] = np.arange(len(self.values))
        return labels


@dataclass(frozen=True, eq=False)
class MaskedImages:
    """Images, each with a mask file."""

    source: Source
    files: tuple[Path, ...]
    classes: PixelClasses

    def __len__(self) -> int:
        return len(self.source)

    def subset(self, indices: Sequence[int] | np.ndarray) -> "MaskedImages":
        """The images of these indices, in the order given, with the same classes."""
        kept = np.asarray(indices, dtype=np.int64)
        files = tuple(self.files[index] for index in kept.tolist())
        return MaskedImages(self.source.subset(kept), files, self.classes)

    def read(self, index: int, size_wh: tuple[int, int]) -> Int16[np.ndarray, "H W"]:
        """The class of each pixel of an image of this size, IGNORED where there is none.

        Images are turned upright by their EXIF orientation; a mask must be upright as it is stored.
        """
        return self._labels(index, size_wh)

    def check_values(self) -> None:
        """Raise an error if a mask cannot be read or has a value that is no class."""
        for index in range(len(self)):
            self._labels(index)

    def _labels(
        self, index: int, size_wh: tuple[int, int] | None = None
    ) -> Int16[np.ndarray, "H W"]:
        values = read_values(self.files[index], size_wh)
        labels: Int16[np.ndarray, "H W"] = self.classes.label_of_value.take(values)
        if labels.min() == _UNKNOWN:
            strange = np.unique(values[labels == _UNKNOWN]).tolist()
            raise UserError(
                f"{self.files[index]} has {list_values(strange)}, "
                f"{agree(len(strange), 'which is', 'which are')} none of the {len(self.classes)} "
                "classes; add to masks.ignored what is no class, or set masks.first and "
                "masks.classes"
            )
        return labels


def join_masked(parts: Sequence[MaskedImages]) -> MaskedImages:
    """The images of several splits, which have the same classes, one split after the other."""
    files = tuple(file for part in parts for file in part.files)
    return MaskedImages(join([part.source for part in parts]), files, parts[0].classes)


def open_masked(
    data: Path, config: MasksConfig, *, channels: int | None = None
) -> dict[str, MaskedImages]:
    """The images of `data` with their masks by split: train, and perhaps val and test.

    The classes are those of the settings, or else the values that occur in the masks of train; then
    all masks are read, so that a value that only other splits have is found before training.
    """
    found = find_masks(data, channels=channels)
    if found.are_trimaps:
        classes = classes_of_trimaps(config)
    else:
        classes = _classes(Path(data), config, found.splits[TRAIN][1])
    opened = {
        split: MaskedImages(source, files, classes)
        for split, (source, files) in found.splits.items()
    }
    if config.classes is None and not found.are_trimaps:
        for split in opened:
            if split != TRAIN:
                opened[split].check_values()
    return opened


def classes_of_trimaps(config: MasksConfig) -> PixelClasses:
    """Object and background; the border has no class."""
    names = config.names or _OF_TRIMAPS
    if len(names) != len(_OF_TRIMAPS) or config.classes not in (None, len(_OF_TRIMAPS)):
        raise UserError(
            f"{TRIMAPS} have two classes, object and background, but the settings want "
            f"{config.classes or len(names)}; remove masks.classes and masks.names, or rename the "
            "folder to masks if its files are no trimaps"
        )
    ignored = {_BORDER, *config.ignored} - {_OBJECT, _BACKGROUND}
    return PixelClasses(names, (_OBJECT, _BACKGROUND), tuple(sorted(ignored)), _OBJECT)


def _classes(data: Path, config: MasksConfig, files: Sequence[Path]) -> PixelClasses:
    if config.classes is not None:
        values = tuple(range(config.first, config.first + config.classes))
        if values[-1] >= VALUES:
            raise UserError(
                f"masks.first={config.first} and masks.classes={config.classes} reach beyond "
                f"{VALUES - 1}, the largest value of a mask; set a lower one"
            )
    else:
        log.info("reading %s of train to find the classes", counted(len(files), "mask"))
        values = class_values(files, config)
    return PixelClasses(
        names_of(values, data, given=config.names, first=config.first),
        values,
        config.ignored,
        config.first,
    )


def class_values(files: Sequence[Path], config: MasksConfig) -> tuple[int, ...]:
    """The values of all classes that occur in the masks."""
    occurs = np.zeros(VALUES, dtype=np.bool_)
    for file in files:
        occurs[read_values(file)] = True
    present = np.flatnonzero(occurs).tolist()
    values = tuple(v for v in present if v >= config.first and v not in config.ignored)
    if len(values) < 2:
        raise UserError(
            f"the train masks, such as {files[0]}, have {list_values(present)}, of which "
            f"{len(values)} {agree(len(values), 'is a class', 'are classes')}; segmentation wants "
            f"at least two: change masks.ignored={list(config.ignored)} or masks.first="
            f"{config.first}"
        )
    if len(values) > _MOST_CLASSES:
        raise UserError(
            f"the train masks, such as {files[0]}, have {len(values):,} values; a mask must hold "
            f"class numbers, of which at most {_MOST_CLASSES:,} differ"
        )
    return values
