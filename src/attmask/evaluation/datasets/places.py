"""Places205: scenes, by the official lists of its training and validation images."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from attmask.data.source import Source
from attmask.data.stores.labels import in_order
from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.datasets.listed import files_source, folder_with, require_images, table
from attmask.settings import Config

_LISTS = "trainvalsplit_places205"
_IMAGES = "data/vision/torralba/deeplearning/images256"
_CLASSES = 205


class Places205(Config):
    """Places205: the official training list to learn from, the validation list to test on."""

    layout: ClassVar[str] = (
        f"train_places205.csv and val_places205.csv (or in {_LISTS}/), and the images they name "
        f"below {_IMAGES}/, images256/ or beside the lists"
    )

    def open(self, path: Path) -> Split:
        """Open the 2,448,873 training and the 20,500 validation images."""
        listed = {}
        for split in ("train", "val"):
            file = f"{split}_places205.csv"
            lists = folder_with(path, file, [_LISTS], self.layout)
            listed[split] = _rows(lists / file)
        root = _root(path, listed["train"][0][0])
        named = {f"{split} images": [name for name, _ in rows] for split, rows in listed.items()}
        require_images(root, named, self.layout)
        classes = in_order(list({label for rows in listed.values() for _, label in rows}))
        return Split(
            _source(root, listed["train"], classes), _source(root, listed["val"], classes), "val"
        )


def _rows(file: Path) -> list[tuple[str, str]]:
    """The path and the class of each image of a list."""
    rows = [(name, label) for name, label in table(file, 2)]
    if not rows:
        raise UserError(f"{file} names no images; download the official file again")
    for name, label in rows:
        if not label.isdecimal() or int(label) >= _CLASSES:
            raise UserError(
                f"{name} in {file} has the class {label}, wanted 0 to {_CLASSES - 1}; download "
                "the official file again"
            )
    return rows


def _root(path: Path, first: str) -> Path:
    """The folder that the names are relative to: the first one that has the first image."""
    places = (path / _IMAGES, path / "images256", path)
    return next((root for root in places if (root / first).is_file()), places[0])


def _source(root: Path, rows: Sequence[tuple[str, str]], classes: Sequence[str]) -> Source:
    return files_source(root, [name for name, _ in rows], [label for _, label in rows], classes)
