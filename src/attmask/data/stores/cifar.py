"""CIFAR-10 and CIFAR-100 in their official files: the Python and the binary version, mapped.

cifar-10-batches-py/   data_batch_1 ... data_batch_5  test_batch  batches.meta
cifar-10-batches-bin/  data_batch_1.bin ... data_batch_5.bin  test_batch.bin  batches.meta.txt
cifar-100-python/      train  test  meta
cifar-100-binary/      train.bin  test.bin  fine_label_names.txt
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Int64, UInt8

from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.stores.columns import narrowest
from attmask.data.stores.mapped import map_array
from attmask.data.stores.pickles import StoredArray, read_pickle, text
from attmask.data.stores.splits import TEST, TRAIN
from attmask.errors import UserError
from attmask.reading import MOST_BYTES, check_regular, read_regular

_SHAPE = (3, 32, 32)
_BYTES = 3 * 32 * 32
_PIXELS, _LABEL = "pixels", "label"


@dataclass(frozen=True, eq=False)
class Layout:
    """One of the versions that CIFAR is published in."""

    title: str
    folder: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    meta: str
    """The file with the names of the classes."""
    names: str = ""
    """The entry of these names in a pickle."""
    labels: str = ""
    """The entry of the labels in a pickle."""
    record: np.dtype[Any] | None = None
    """One image in a binary file, with its label; None for pickles."""

    @property
    def files(self) -> tuple[str, ...]:
        """All files that are read."""
        return (*self.train, *self.test, self.meta)

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has the official name or at least two of the files."""
        if folder.name == self.folder:
            return folder.is_dir()
        return sum((folder / name).is_file() for name in self.files) >= 2


def _record(*numbers: str) -> np.dtype[Any]:
    return np.dtype([*((number, "u1") for number in numbers), (_PIXELS, "u1", _SHAPE)])


_FIVE = tuple(f"data_batch_{number}" for number in range(1, 6))
LAYOUTS = (
    Layout(
        "CIFAR-10",
        "cifar-10-batches-py",
        train=_FIVE,
        test=("test_batch",),
        meta="batches.meta",
        names="label_names",
        labels="labels",
    ),
    Layout(
        "CIFAR-10",
        "cifar-10-batches-bin",
        train=tuple(f"{name}.bin" for name in _FIVE),
        test=("test_batch.bin",),
        meta="batches.meta.txt",
        record=_record(_LABEL),
    ),
    Layout(
        "CIFAR-100",
        "cifar-100-python",
        train=("train",),
        test=("test",),
        meta="meta",
        names="fine_label_names",
        labels="fine_labels",
    ),
    Layout(
        "CIFAR-100",
        "cifar-100-binary",
        train=("train.bin",),
        test=("test.bin",),
        meta="fine_label_names.txt",
        record=_record("coarse label", _LABEL),
    ),
)


@dataclass(frozen=True, eq=False)
class Batches:
    """A store of the pictures in one or several files, called `data_batch_1[12]`."""

    root: Path
    files: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    """For each file its pictures, R G B one after the other, or records with them."""

    def __len__(self) -> int:
        return sum(map(len, self.arrays))

    def name(self, row: int) -> str:
        """The file and the row in it."""
        batch, inner = self._place(row)
        return f"{self.files[batch]}[{inner}]"

    def read(self, row: int) -> UInt8[np.ndarray, "32 32 3"]:
        """The pixels, copied out of the file, channels last."""
        batch, inner = self._place(row)
        picture = self.arrays[batch][inner]
        planes = picture[_PIXELS] if self.arrays[batch].dtype.names else picture
        return np.array(planes.transpose(1, 2, 0), order="C")

    @cached_property
    def shards(self) -> Sequence[int]:
        """The rows where a file begins."""
        return tuple(accumulate(map(len, self.arrays[:-1]), initial=0))

    def paths(self, rows: Int64[np.ndarray, " m"] | range) -> Iterable[Path]:
        """The files that hold these pictures."""
        batches = np.unique(np.searchsorted(self.shards, np.asarray(rows), side="right") - 1)
        return [self.root / self.files[batch] for batch in batches.tolist()]

    def _place(self, row: int) -> tuple[int, int]:
        batch = bisect_right(self.shards, row) - 1
        return batch, row - self.shards[batch]


def find_cifar(folder: Path) -> Layout | None:
    """The version of CIFAR that a folder holds, if any."""
    return next((layout for layout in LAYOUTS if layout.is_in(folder)), None)


def open_cifar(folder: Path, layout: Layout) -> Images:
    """The images of a version of CIFAR; those of test are held out."""
    for name in layout.files:
        if not (folder / name).exists():
            raise UserError(
                f"{folder} has no {name}; {layout.title} consists of {', '.join(layout.files)}: "
                "download and unpack it again"
            )
    classes = _class_names(folder, layout)
    splits = {TRAIN: layout.train, TEST: layout.test}
    return Images.of(
        {split: _source(folder, files, layout, classes) for split, files in splits.items()}
    )


def _class_names(folder: Path, layout: Layout) -> tuple[str, ...]:
    file = folder / layout.meta
    if layout.record is not None:
        lines = read_regular(file, MOST_BYTES).decode(errors="replace").splitlines()
        names = [line.strip() for line in lines if line.strip()]
    else:
        held = read_pickle(file)[layout.names]
        names = [text(name) for name in held] if isinstance(held, list) else []
    if not names or len(set(names)) < len(names):
        raise UserError(f"{file} does not name the classes, each once; download it again")
    return tuple(names)


def _source(
    folder: Path, files: tuple[str, ...], layout: Layout, classes: tuple[str, ...]
) -> Source:
    opened = [_opened(folder / file, layout) for file in files]
    for file, (_, labels) in zip(files, opened, strict=True):
        if labels.min() < 0 or labels.max() >= len(classes):
            raise UserError(
                f"{folder / file} has labels {labels.min()} to {labels.max()}, but {layout.meta} "
                f"names {len(classes)} classes; download both again"
            )
    store = Batches(folder, files, tuple(pictures for pictures, _ in opened))
    labels = np.concatenate([labels for _, labels in opened]).astype(narrowest(len(classes)))
    return Source(folder, store, range(len(store)), labels, classes)


def _opened(file: Path, layout: Layout) -> tuple[np.ndarray, Int[np.ndarray, " N"]]:
    """The pictures of a file, mapped, and their labels."""
    check_regular(file)
    if layout.record is None:
        return _pickled(file, layout)
    rows, rest = divmod(file.stat().st_size, layout.record.itemsize)
    if rest or not rows:
        raise UserError(
            f"{file} has {file.stat().st_size:,} bytes, not a multiple of "
            f"{layout.record.itemsize:,}; download it again"
        )
    records = map_array(file, 0, (rows,), layout.record)
    return records, np.asarray(records[_LABEL], dtype=np.int64)


def _pickled(file: Path, layout: Layout) -> tuple[np.ndarray, Int[np.ndarray, " N"]]:
    entries = read_pickle(file)
    data, labels = entries["data"], entries[layout.labels]
    try:
        if not isinstance(data, StoredArray):
            raise ValueError("its data are no array")
        shape, raw = data.content()
        rows = shape[0] if shape else 0
        if shape != (rows, _BYTES) or len(raw) != rows * _BYTES or not rows:
            raise ValueError(f"it has an array of shape {shape}, wanted images × {_BYTES}")
        if not isinstance(labels, list) or len(labels) != rows:
            raise ValueError(f"it does not have {rows} labels")
        if not all(type(label) is int and 0 <= label < 2**31 for label in labels):
            raise ValueError("it has labels that are no numbers of classes")
    except ValueError as fault:
        raise UserError(f"{file} is damaged: {fault}; download it again") from fault
    if data.offset is None:  # written by another version of Python than the official files
        pictures = np.frombuffer(raw, dtype=np.uint8).reshape(rows, *_SHAPE)
    else:
        pictures = map_array(file, data.offset, (rows, *_SHAPE), np.dtype(np.uint8))
    return pictures, np.array(labels, dtype=np.int64)
