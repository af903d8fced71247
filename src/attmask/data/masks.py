"""Images with masks: a class for each pixel, or none."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int16
from pydantic import field_validator, model_validator

from attmask.data.mask_files import TRIMAPS, VALUES, find_masks, read_values
from attmask.data.source import Source
from attmask.data.stores.splits import TRAIN
from attmask.errors import UserError
from attmask.reading import MOST_BYTES, read_regular
from attmask.settings import Config, setting
from attmask.wording import counted

log = logging.getLogger(__name__)

IGNORED = -1
"""The label of pixels without a class."""
_UNKNOWN = -2
_MOST_CLASSES = 1 << 15
_SHOWN = 5

_CLASSES_FILE = "classes.txt"
_ADE20K_FILE = "objectInfo150.txt"

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
        file = self.files[index]
        values = read_values(file, size_wh)
        labels: Int16[np.ndarray, "H W"] = self.classes.label_of_value[values]
        if labels.min() == _UNKNOWN:
            strange = _list_values(np.unique(values[labels == _UNKNOWN]).tolist())
            raise UserError(
                f"{file} has {strange}, which {'are' if ',' in strange else 'is'} none of the "
                f"{len(self.classes)} classes; add to masks.ignored what is no class, or set "
                "masks.first and masks.classes"
            )
        return labels


def open_masked(
    data: Path, config: MasksConfig, *, channels: int | None = None
) -> dict[str, MaskedImages]:
    """The images of `data` with their masks by split: train, and perhaps val and test.

    The classes are those of the settings, or else the values that occur in the masks of train.
    """
    found = find_masks(data, channels=channels)
    classes = (
        classes_of_trimaps(config)
        if found.are_trimaps
        else _classes(Path(data), config, found.splits[TRAIN][1])
    )
    return {
        split: MaskedImages(source, files, classes)
        for split, (source, files) in found.splits.items()
    }


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
    return PixelClasses(_names(data, config, values), values, config.ignored, config.first)


def class_values(files: Sequence[Path], config: MasksConfig) -> tuple[int, ...]:
    """The values of all classes that occur in the masks."""
    occurs = np.zeros(VALUES, dtype=np.bool_)
    for file in files:
        occurs[read_values(file)] = True
    present = np.flatnonzero(occurs).tolist()
    values = tuple(v for v in present if v >= config.first and v not in config.ignored)
    if len(values) < 2:
        raise UserError(
            f"the train masks, such as {files[0]}, have {_list_values(present)}, of which "
            f"{len(values)} is a class; segmentation wants at least two classes: change "
            f"masks.ignored={list(config.ignored)} or masks.first={config.first}"
        )
    if len(values) > _MOST_CLASSES:
        raise UserError(
            f"the train masks, such as {files[0]}, have {len(values):,} values; a mask must hold "
            f"class numbers, of which at most {_MOST_CLASSES:,} differ"
        )
    return values


def _names(data: Path, config: MasksConfig, values: Sequence[int]) -> tuple[str, ...]:
    """The names in the settings or else in a file of the data, or else the values."""
    if config.names:
        if len(config.names) != len(values):
            raise UserError(
                f"masks.names has {counted(len(config.names), 'name')}, but the train masks have "
                f"{len(values)} classes, {_list_values(values)}; give one for each, or set "
                "masks.classes"
            )
        return config.names
    if (data / _CLASSES_FILE).exists():
        return _named_in_list(data / _CLASSES_FILE, values, config.first)
    if (data / _ADE20K_FILE).exists():
        named = dict(_named_in_table(_lines(data / _ADE20K_FILE)))
        if all(value in named for value in values):
            return tuple(named[value] for value in values)
    return tuple(map(str, values))


def _named_in_list(file: Path, values: Sequence[int], first: int) -> tuple[str, ...]:
    """One name a line, either of the classes that occur or of all values from the first on."""
    names = _lines(file)
    if len(names) == len(values):
        return tuple(names)
    if len(names) > max(values) - first:
        return tuple(names[value - first] for value in values)
    raise UserError(
        f"{file} has {counted(len(names), 'line')} for {len(values)} classes, "
        f"{_list_values(values)}; write one name a line"
    )


def _named_in_table(lines: Iterable[str]) -> Iterable[tuple[int, str]]:
    """ADE20K's table: the value comes first and the synonyms of the name come last."""
    for line in lines:
        number, *_, synonyms = line.split("\t") if "\t" in line else ("", "")
        if number.strip().isdecimal():
            yield int(number), synonyms.replace(";", ",").split(",")[0].strip()


def _lines(file: Path) -> list[str]:
    try:
        text = read_regular(file, MOST_BYTES).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(f"cannot read {file} as UTF-8 text; write one name a line") from fault
    return [line.strip() for line in text.splitlines() if line.strip()]


def _list_values(values: Sequence[int]) -> str:
    shown = ", ".join(map(str, values[:_SHOWN])) + (", ..." if len(values) > _SHOWN else "")
    return f"the value{'' if len(values) == 1 else 's'} {shown}"
