"""Where the annotation files of a data set in COCO's format are, and where their images."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from attmask.data.stores.splits import TRAIN, split_of, with_train
from attmask.errors import UserError
from attmask.wording import counted

LAYOUTS = (
    "annotations/instances_train2017.json with train2017/ or images/train2017/, "
    "train/_annotations.coco.json beside the images, annotations.json beside the images or "
    "images/, or a .json file"
)
_FILES = ("_annotations.coco.json", "annotations.json", "_annotations.json")
_PREFIX = "instances_"


class Annotations(NamedTuple):
    """An annotation file, and the folders that may hold its images, the likeliest first."""

    file: Path
    folders: tuple[Path, ...]


def find_annotations(data: Path) -> dict[str, Annotations]:
    """The annotation file of each split: train, perhaps val and test."""
    if data.is_file():
        return {TRAIN: _beside(data)}
    if not data.is_dir():
        raise UserError(f"{data} does not exist; wanted a folder or a file of COCO's format")
    found = _official(data) or _split_folders(data)
    if found:
        return with_train(found, data)
    if (file := _file_in(data)) is not None:
        return {TRAIN: _beside(file)}
    raise UserError(f"{data} has no annotations in COCO's format; wanted {LAYOUTS}")


def find_images(annotations: Annotations, names: Sequence[str]) -> Path:
    """The folder that holds the images; an error if some are missing."""
    for folder in annotations.folders:
        if (folder / names[0]).is_file():
            root = folder
            break
    else:
        # The first may be the one that is missing: take the folder that has the most.
        root = max(annotations.folders, key=lambda folder: _present(folder, names))
    missing = [name for name in names if not (root / name).is_file()]
    if missing:
        raise UserError(
            f"{len(missing):,} of {counted(len(names), 'image')} of {annotations.file} are missing "
            f"in {root}, the first is {missing[0]}; wanted {LAYOUTS}"
        )
    return root


def _present(folder: Path, names: Sequence[str]) -> int:
    return sum((folder / name).is_file() for name in names)


def _beside(file: Path) -> Annotations:
    folder = file.parent
    return Annotations(file, (folder, folder / "images"))


def _file_in(folder: Path) -> Path | None:
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def _official(data: Path) -> dict[str, Annotations]:
    """The splits of `annotations/instances_SPLIT.json`; a single file of another name is train."""
    files = sorted(p for p in (data / "annotations").glob("*.json") if not p.name.startswith("."))
    found: dict[str, Annotations] = {}
    for file in files:
        name = file.stem.removeprefix(_PREFIX)
        if (split := split_of(name)) is None:
            continue
        if split in found:
            raise UserError(
                f"{found[split].file} and {file} both mean {split}; move one of them elsewhere"
            )
        found[split] = _of_folder(data, file, name, split)
    if not found and len(files) == 1:
        return {TRAIN: _of_folder(data, files[0], files[0].stem.removeprefix(_PREFIX), TRAIN)}
    return found


def _of_folder(data: Path, file: Path, name: str, split: str) -> Annotations:
    own = dict.fromkeys((name, split))
    folders = [*(data / each for each in own), *(data / "images" / each for each in own)]
    return Annotations(file, (*folders, data / "images", data))


def _split_folders(data: Path) -> dict[str, Annotations]:
    """The splits of `SPLIT/_annotations.coco.json`."""
    found: dict[str, Annotations] = {}
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        split, file = split_of(folder.name), _file_in(folder)
        if split is None or file is None:
            continue
        if split in found:
            raise UserError(
                f"{found[split].file} and {file} both mean {split}; move one of them elsewhere"
            )
        found[split] = _beside(file)
    return found
