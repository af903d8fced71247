"""Where the images come from: a folder becomes an ordered list of files, with labels if it has any.

Three layouts are known by what is in the folder: `train/` beside an optional `val/`, one
sub-folder a class, and images without labels.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator

from attmask.errors import UserError
from attmask.settings import Config, setting

log = logging.getLogger(__name__)

ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif")
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
GREY_MEAN = (0.459,)  # ImageNet's mean through the luma weights 0.299, 0.587, 0.114
GREY_STD = (0.226,)  # the mean of the three: channels of photographs go nearly together

# Folders that may lie beside train/ and are no classes.
_BESIDE_TRAIN = frozenset({"train", "val", "test", "trimaps", "masks"})


class DataConfig(Config):
    """What is read of the images and how their values are scaled."""

    channels: int = setting(3, "channels an image is read with: 3 colour, 1 grey")
    per_class: int | None = setting(
        None,
        "train on the first n images of each class, in file order (null: on all)",
        paper="65, 130, 260 for 5, 10, 20 % of ImageNet",
        ge=1,
    )
    mean: tuple[float, ...] = setting(
        IMAGENET_MEAN, "mean of each channel, or one for all, in 0..1", paper="ImageNet's"
    )
    std: tuple[float, ...] = setting(
        IMAGENET_STD, "deviation of each channel, or one for all, in 0..1", paper="ImageNet's"
    )

    @model_validator(mode="before")
    @classmethod
    def _grey_statistics_for_grey_images(cls, given: Any) -> Any:
        """One channel takes ImageNet's grey values where its colour values stood."""
        if not isinstance(given, dict) or given.get("channels") not in (1, "1"):
            return given
        grey = dict(given)
        for name, colour, one in (
            ("mean", IMAGENET_MEAN, GREY_MEAN),
            ("std", IMAGENET_STD, GREY_STD),
        ):
            if grey.get(name, colour) in (colour, list(colour)):
                grey[name] = one
        return grey

    @field_validator("channels")
    @classmethod
    def _colour_or_grey(cls, channels: int) -> int:
        if channels not in (1, 3):
            raise ValueError(f"images with {channels} channels are not supported; use 3 or 1")
        return channels

    @model_validator(mode="after")
    def _one_value_a_channel(self) -> "DataConfig":
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise ValueError(
                    f"{name} has {len(values)} values for {self.channels} channels; "
                    f"give one for each channel, or one for all"
                )
        if min(self.std) <= 0:
            raise ValueError(f"std {self.std} must be above 0; it divides the pixel values")
        return self


@dataclass(frozen=True)
class Source:
    """Images in a fixed order: files below `root`, and the class of each where there are classes.

    `labels[i]` indexes `classes`; without labels, `labels` is None and `classes` is empty.
    """

    root: Path
    paths: Sequence[Path]
    labels: Sequence[int] | None = None
    classes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, index: int) -> Path:
        """Where image `index` lies on disk."""
        return self.root / self.paths[index]

    def subset(self, indices: Sequence[int]) -> "Source":
        """The images of these indices, in the order given, with the same classes."""
        labels = None if self.labels is None else tuple(self.labels[i] for i in indices)
        return replace(self, paths=tuple(self.paths[i] for i in indices), labels=labels)

    def first_per_class(self, count: int) -> "Source":
        """The first `count` images of each class in file order (all, where a class has fewer)."""
        if self.labels is None:
            raise UserError(
                f"the first {count} images of each class were asked for, but the images in "
                f"{self.root} have no labels; leave per_class out or use one sub-folder a class"
            )
        if count < 1:
            raise UserError(f"per_class is {count}; it must be at least 1")
        seen: Counter[int] = Counter()
        kept = []
        for index, label in enumerate(self.labels):
            if seen[label] < count:
                seen[label] += 1
                kept.append(index)
        return self.subset(kept)

    def split_holdout(self, fraction: float) -> tuple["Source", "Source"]:
        """Split into (bank, queries): about `fraction` of each class, evenly spaced, are queries.

        A class with two images or more gives at least one to each side; a single image is bank.
        """
        if not 0 < fraction < 1:
            raise UserError(f"a holdout of {fraction} is impossible; use a share between 0 and 1")
        members: dict[int, list[int]] = {}
        for index, label in enumerate(self.labels or [0] * len(self)):
            members.setdefault(label, []).append(index)
        queries: set[int] = set()
        for ours in members.values():
            count = min(max(1, round(len(ours) * fraction)), len(ours) - 1)
            # The middle of each of `count` equal stretches, so that files of one day, one camera
            # or one film, which lie together, are on both sides.
            queries.update(ours[(2 * j + 1) * len(ours) // (2 * count)] for j in range(count))
        bank = [index for index in range(len(self)) if index not in queries]
        return self.subset(bank), self.subset(sorted(queries))


@dataclass(frozen=True)
class Images:
    """A data set: images to train on and, if there are any, images to validate on."""

    train: Source
    val: Source | None = None


def open_images(path: Path) -> Images:
    """Find the images below `path`, whichever of the known layouts it has."""
    try:
        if not path.exists():
            raise UserError(f"there is no {path}; give a folder of images")
        if not path.is_dir():
            raise UserError(f"{path} is a file; give a folder of images")
        if not _is_split(path):
            return Images(_open_folder(path))
        train = _open_folder(path / "train")
        if not (path / "val").is_dir():
            return Images(train)
        return Images(train, _match_classes(_open_folder(path / "val"), train))
    except OSError as fault:
        raise UserError(f"cannot read {path}: {fault.strerror}; give a folder of images") from fault


def _is_split(path: Path) -> bool:
    """Whether `train/` is a part of the data, not a class (of vehicles, say) among others."""
    if not (path / "train").is_dir():
        return False
    others = [p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")]
    others = [p for p in others if p.name not in _BESIDE_TRAIN]
    return (path / "val").is_dir() or not any(_has_images(folder) for folder in others)


def _open_folder(folder: Path) -> Source:
    """One source from one folder: labelled by its sub-folders, or without labels."""
    paths = sorted(file for file in _files(folder) if _is_image(file))
    if not paths:
        raise UserError(_nothing_found(folder))
    direct = sum(len(path.parts) == 1 for path in paths)
    if direct:
        if direct < len(paths):
            log.warning(
                "%s has images beside sub-folders with images: all %d are taken, without labels",
                folder,
                len(paths),
            )
        return Source(folder, tuple(paths))
    classes = sorted({path.parts[0] for path in paths})
    number = {name: label for label, name in enumerate(classes)}
    labels = tuple(number[path.parts[0]] for path in paths)
    return Source(folder, tuple(paths), labels, tuple(classes))


def _match_classes(val: Source, train: Source) -> Source:
    """Number the classes of `val` as `train` does, by name."""
    if val.labels is None or train.labels is None:
        return val
    missing = sorted(set(val.classes) - set(train.classes))
    if missing:
        named = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UserError(
            f"{val.root} has {len(missing)} classes that {train.root} does not have: {named}; "
            f"name the sub-folders alike or remove these"
        )
    number = {name: label for label, name in enumerate(train.classes)}
    labels = tuple(number[val.classes[label]] for label in val.labels)
    return replace(val, labels=labels, classes=train.classes)


def _files(folder: Path) -> Iterator[Path]:
    """Every file below `folder`, relative to it, hidden ones left out, links followed once."""
    visited: set[tuple[int, int]] = set()
    for where, folders, names in os.walk(folder, followlinks=True):
        # A link to a folder above would otherwise be walked for ever.
        status = Path(where).stat()
        if (status.st_dev, status.st_ino) in visited:
            folders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        below = Path(where).relative_to(folder)
        yield from (below / name for name in names if not name.startswith("."))


def _is_image(file: Path) -> bool:
    return file.suffix.lower() in ENDINGS


def _has_images(folder: Path) -> bool:
    return any(_is_image(file) for file in _files(folder))


def _nothing_found(folder: Path) -> str:
    """The one line that says why a folder gave no image."""
    endings = Counter(file.suffix.lower() or "none" for file in _files(folder))
    wanted = ", ".join(ENDINGS)
    if not endings:
        return f"no images in {folder}: it has no files; wanted {wanted}"
    found = ", ".join(ending for ending, _ in endings.most_common(5))
    return (
        f"no images in {folder}: found {endings.total()} files with endings {found}; "
        f"wanted {wanted}"
    )
