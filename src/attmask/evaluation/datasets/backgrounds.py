"""ImageNet-9: objects of nine kinds with their own, another or no background."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.settings import Config, setting

KINDS = (
    "00_dog",
    "01_bird",
    "02_vehicle",
    "03_reptile",
    "04_carnivore",
    "05_insect",
    "06_instrument",
    "07_primate",
    "08_fish",
)
ORIGINAL = "original"
VARIANTS: Mapping[str, str] = {
    "original": ORIGINAL,
    "mixed same": "mixed_same",
    "mixed random": "mixed_rand",
    "mixed next": "mixed_next",
    "no foreground": "no_fg",
    "only foreground": "only_fg",
    "only background (box)": "only_bg_b",
    "only background (tiled)": "only_bg_t",
}
"""The published folders by title, in the order of the tables."""
MAPPING = "in_to_in9.json"


@dataclass(frozen=True, eq=False)
class ChangedBackgrounds:
    """The available variants by title, and the images or mapping for their classifier."""

    tests: Mapping[str, Source]
    train: Source | None
    kind_of: tuple[int, ...] | None
    """The kind of each ImageNet class, -1 for classes outside the nine kinds."""
    root: Path

    @property
    def sources(self) -> Mapping[str, Source]:
        """All variants, and the training images if there are any."""
        return {**self.tests, **({} if self.train is None else {"train": self.train})}

    @property
    def missing(self) -> list[str]:
        """The published variants that are missing."""
        return [name for name in VARIANTS if name not in self.tests]


class Backgrounds(Config):
    """The published files of the backgrounds challenge."""

    layout: ClassVar[str] = (
        "original/val/00_dog/*.JPEG to 08_fish, the same in mixed_same, mixed_rand, mixed_next, "
        "no_fg, only_fg, only_bg_b and only_bg_t, and in_to_in9.json; a 9-way classifier is fitted "
        "on original/train"
    )

    mapping: Path | None = setting(
        None, "file with the kind of each ImageNet class (null: in_to_in9.json beside the variants)"
    )

    def open(self, path: Path) -> ChangedBackgrounds:
        """Open the variants that exist; at least one is needed."""
        folders = {name: path / folder / "val" for name, folder in VARIANTS.items()}
        folders = {name: folder for name, folder in folders.items() if folder.is_dir()}
        train = path / ORIGINAL / "train"
        if not folders and (path / "val").is_dir():  # only the original images
            folders, train = {"original": path / "val"}, path / "train"
        if not folders:
            raise UserError(f"{path} has no variant of ImageNet-9; wanted {self.layout}")
        mapping = self.mapping or path / MAPPING
        return ChangedBackgrounds(
            tests={name: _kinds(open_images(f).train) for name, f in folders.items()},
            train=_kinds(open_images(train).train) if train.is_dir() else None,
            kind_of=read_mapping(mapping) if self.mapping or mapping.is_file() else None,
            root=path,
        )


def _kinds(source: Source) -> Source:
    """The same images, labelled with the number at the start of their folder's name."""
    if source.labels is None:
        raise UserError(f"the images of {source.root} are not in folders 00_dog to 08_fish")
    begins = [re.match(r"0([0-8])(_|$)", name) for name in source.classes]
    wrong = [n for n, begin in zip(source.classes, begins, strict=True) if begin is None]
    if wrong:
        raise UserError(
            f"{source.root} has a folder {wrong[0]}; wanted only 00_dog to 08_fish of ImageNet-9"
        )
    numbers = np.array([int(begin[1]) for begin in begins if begin], dtype=np.int64)
    return replace(source, labels=numbers[source.labels], classes=KINDS)


def read_mapping(file: Path) -> tuple[int, ...]:
    """Read the kind of each class, in the order of the classes."""
    try:
        found = json.loads(file.read_text())
        kinds = tuple(found[str(number)] for number in range(len(found)))
    except OSError as fault:
        raise UserError(f"cannot read {file}: {fault.strerror or fault}") from fault
    except (ValueError, KeyError, TypeError):
        kinds = ()
    if not kinds or not all(type(kind) is int and -1 <= kind < len(KINDS) for kind in kinds):
        raise UserError(
            f"{file} is not a mapping of classes to kinds; wanted the official {MAPPING}, "
            'which maps every class from "0" on to a number from -1 to 8'
        )
    return kinds
