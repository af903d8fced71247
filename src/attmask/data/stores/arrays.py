"""Pictures in arrays: `.npy` and `.npz` files, mapped where they are stored as they are."""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Int64

from attmask.data.source import Images, Source
from attmask.data.stores.labels import LabelsBuilder, renumber
from attmask.data.stores.mapped import map_npy, map_npz, npz_shapes
from attmask.errors import UserError

ENDINGS = (".npy", ".npz")
_IMAGES = ("images", "x", "data")
_LABELS = ("labels", "y")
_MOST_CHANNELS_FIRST = 4  # N C H W with so many channels at most and a larger H and W

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
        """One: the array itself."""
        return (0,)


def open_arrays(file: Path) -> Images:
    """The pictures of a `.npy` file, or of a `.npz` file with labels and a split if it has them."""
    if file.suffix.lower() == ".npy":
        return Images(_source(file, file.name, _opened(file, lambda: map_npy(file))))
    shapes = _opened(file, lambda: npz_shapes(file))
    if "x_train" not in shapes:
        return Images(_from_npz(file, file.name, shapes, _images_in(file, shapes), _LABELS))
    train = _from_npz(file, f"{file.name}/x_train", shapes, "x_train", ("y_train",))
    part = next((part for part in ("val", "test") if f"x_{part}" in shapes), None)
    if part is None:
        return Images(train)
    called = f"{file.name}/x_{part}"
    val = _from_npz(file, called, shapes, f"x_{part}", (f"y_{part}",))
    if val.labels is not None and train.labels is not None:
        place, there = f"y_{part} of {file}", "y_train"
        labels = renumber(val.labels, val.classes, train.classes, place, there)
        val = Source(val.root, val.store, val.rows, labels, train.classes)
    return Images(train, val)


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
        f"or one of the names {', '.join(_IMAGES)}, or x_train"
    )


def _from_npz(
    file: Path,
    called: str,
    shapes: Mapping[str, tuple[int, ...]],
    images: str,
    label_names: Sequence[str],
) -> Source:
    pictures = _opened(file, lambda: map_npz(file, images))
    label_name = next((name for name in label_names if name in shapes), None)
    if label_name is None:
        return _source(file, called, pictures)
    values = _opened(file, lambda: map_npz(file, label_name))
    return _source(file, called, pictures, _numbered(file, label_name, values, len(pictures)))


def _source(
    file: Path,
    called: str,
    pictures: np.ndarray,
    labels: tuple[Int64[np.ndarray, " M"] | None, tuple[str, ...]] = (None, ()),
) -> Source:
    shape = pictures.shape
    if len(shape) not in (3, 4) or 0 in shape or pictures.dtype.kind not in "buif":
        raise UserError(
            f"{file} holds an array of {pictures.dtype} with shape {shape}; "
            f"wanted numbers of shape N H W or N H W C"
        )
    channels_first = len(shape) == 4 and shape[1] <= _MOST_CHANNELS_FIRST < min(shape[2], shape[3])
    store = Arrays(called, pictures, channels_first)
    return Source(file.parent, store, np.arange(len(store), dtype=np.int64), *labels)


def _numbered(
    file: Path, name: str, values: np.ndarray, images: int
) -> tuple[Int64[np.ndarray, " M"], tuple[str, ...]]:
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
    """What comes of reading a file; one that is no array file is for the user to mend."""
    try:
        return read()
    except (ValueError, EOFError, zipfile.BadZipFile, zipfile.LargeZipFile) as fault:
        ending = file.suffix.lower()
        raise UserError(f"{file} cannot be read as {ending}: {fault}; make it again") from fault
