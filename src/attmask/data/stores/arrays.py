"""Pictures in arrays: `.npy` and `.npz` files, mapped where they are stored as they are."""

import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Int

from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.stores.axes import channels_first
from attmask.data.stores.labels import Labelled, LabelsBuilder, match_classes
from attmask.data.stores.mapped import map_npy, map_npz, npz_shapes
from attmask.data.stores.splits import split_of, with_train
from attmask.errors import UserError

ENDINGS = (".npy", ".npz")
_IMAGES = ("images", "x", "data")
_LABELS = ("labels", "y")
_BETWEEN_WORDS = re.compile(r"[-_. ]+")

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Arrays:
    """A store of the pictures in one array, called `name[row]`."""

    called: str
    pictures: np.ndarray
    channels_first: bool

    def __len__(self) -> int:
        return len(self.pictures)

    def name(self, row: int) -> str:
        """The file and the row in it."""
        return f"{self.called}[{row}]"

    def read(self, row: int) -> np.ndarray:
        """The pixels, copied out of the file, channels last, in this machine's byte order."""
        pixels = np.asarray(self.pictures[row])
        if self.channels_first:
            pixels = pixels.transpose(1, 2, 0)
        if pixels.dtype == np.bool_:
            return np.where(pixels, np.uint8(255), np.uint8(0))
        return np.array(pixels, dtype=pixels.dtype.newbyteorder("="), order="C")

    @property
    def shards(self) -> Sequence[int]:
        """One shard: the array itself."""
        return (0,)


@dataclass(frozen=True)
class _Named:
    """The names of the arrays of one split."""

    images: str
    labels: str | None


def open_arrays(file: Path, channels: int | None = None) -> Images:
    """The pictures of a `.npy` file, or of a `.npz` file with labels and splits if it has them.

    `channels` decides how arrays are read whose shape can mean two things.
    """
    if file.suffix.lower() == ".npy":
        return Images(_source(file, file.name, _opened(file, lambda: map_npy(file)), channels))
    shapes = _opened(file, lambda: npz_shapes(file))
    splits = _splits_in(file, shapes)
    if not splits:
        named = _Named(_images_in(file, shapes), next((n for n in _LABELS if n in shapes), None))
        return Images(_from_npz(file, file.name, named, channels))
    sources = {
        split: _from_npz(file, f"{file.name}/{named.images}", named, channels)
        for split, named in splits.items()
    }
    return Images.of(match_classes(with_train(sources, file), file))


def _splits_in(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, _Named]:
    """The splits that the names of the arrays mean: `x_train`, `train_images`, `y_test`, ..."""
    images: dict[str, str] = {}
    labels: dict[str, str] = {}
    for name, shape in shapes.items():
        words = _BETWEEN_WORDS.split(name.lower())
        split = next((found for word in words if (found := split_of(word))), None)
        rest = [word for word in words if split_of(word) is None]
        if split is None or len(rest) > 1 or len(rest) == len(words):
            continue
        if len(shape) in (3, 4) and (not rest or rest[0] in _IMAGES):
            held = images
        elif rest and rest[0] in _LABELS:
            held = labels
        else:
            continue
        if split in held:
            raise UserError(
                f"{file} holds {held[split]} and {name}, which both mean {split}; "
                f"rename or remove one of them"
            )
        held[split] = name
    return {split: _Named(name, labels.get(split)) for split, name in images.items()}


def _images_in(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The array of pictures: by its name, or the only one of three or four dimensions."""
    like_images = [name for name, shape in shapes.items() if len(shape) in (3, 4)]
    named = [name for name in _IMAGES if name in like_images]
    if named:
        return named[0]
    if len(like_images) == 1:
        return like_images[0]
    held = ", ".join(f"{name} {shape}" for name, shape in shapes.items()) or "nothing"
    raise UserError(
        f"{file} holds {held}; wanted one array of pictures (N H W or N H W C), "
        f"or one of the names {', '.join(_IMAGES)}, or x_train, or train_images"
    )


def _from_npz(file: Path, called: str, named: _Named, channels: int | None) -> Source:
    pictures = _opened(file, lambda: map_npz(file, named.images))
    label_name = named.labels
    if label_name is None:
        return _source(file, called, pictures, channels)
    values = _opened(file, lambda: map_npz(file, label_name))
    labels = _numbered(file, label_name, values, len(pictures))
    return _source(file, called, pictures, channels, labels)


def _source(
    file: Path,
    called: str,
    pictures: np.ndarray,
    channels: int | None,
    labels: Labelled = (None, ()),
) -> Source:
    shape = pictures.shape
    if len(shape) not in (3, 4) or 0 in shape or pictures.dtype.kind not in "buif":
        raise UserError(
            f"{file} holds an array of {pictures.dtype} with shape {shape}; "
            f"wanted numbers of shape N H W or N H W C"
        )
    first = len(shape) == 4 and channels_first(file, shape[1:], channels)
    store = Arrays(called, pictures, first)
    return Source(file.parent, store, range(len(store)), *labels)


def _numbered(
    file: Path, name: str, values: np.ndarray, images: int
) -> tuple[Int[np.ndarray, " M"], tuple[str, ...]]:
    """Labels as numbers: integers, whole floats or texts, one for each picture."""
    if values.size != images:
        raise UserError(
            f"{file} holds {images} pictures and {values.size} labels ({name}); "
            f"give one label for each picture"
        )
    flat = values.reshape(-1)
    if flat.dtype.kind == "f" and np.array_equal(flat, flat.round()):
        flat = flat.astype(np.int64)
    if flat.dtype.kind not in "biuUS":
        raise UserError(f"{name} of {file} is {flat.dtype}; wanted integers or texts as labels")
    builder = LabelsBuilder()
    for value in flat.tolist():
        builder.add(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
    return builder.build()


def _opened(file: Path, read: Callable[[], Result]) -> Result:
    """Read a file, or raise a UserError if it is not a file of arrays."""
    try:
        return read()
    except (ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as fault:
        ending = file.suffix.lower()
        raise UserError(f"{file} cannot be read as {ending}: {fault}; write it again") from fault
