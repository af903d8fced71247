"""Columns of numbers and bytes that a scan collects: in memory, or in a file if they are long.

A scan of a billion images collects more than a machine's memory. What does not fit into a chunk
goes to a file without a name on the disk of the run, which disappears with the process.
"""

import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Int, Int64

from attmask.errors import UserError

CHUNK = 1 << 20
"""The number of entries that are collected or computed at a time."""
_IN_MEMORY = 1 << 23  # bytes of a column


class Chunks:
    """Arrays of one type, end to end: in a file in `scratch`, or in memory if there is none."""

    def __init__(self, dtype: type[np.generic], scratch: Path | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._scratch = scratch
        self._file: IO[bytes] | None = None
        self._kept: list[np.ndarray] = []
        self._length = 0

    def add(self, chunk: np.ndarray) -> None:
        """One more piece; a file is begun when they become long."""
        chunk = np.ascontiguousarray(chunk, dtype=self._dtype)
        self._length += len(chunk)
        self._kept.append(chunk)
        if self._file is None and self._length * self._dtype.itemsize > _IN_MEMORY:
            self._file = _nameless(self._scratch)
        if self._file is not None:
            self._write(self._file)

    def _write(self, file: IO[bytes]) -> None:
        try:
            for kept in self._kept:
                file.write(kept.data)
            file.flush()
        except OSError as fault:
            raise UserError(
                f"cannot collect the list of images in {self._scratch}: {fault.strerror}; "
                "make room or choose another --out"
            ) from fault
        self._kept.clear()

    def build(self) -> np.ndarray:
        """All of them as one array, mapped where they are in a file."""
        if self._file is None:
            self._kept = [np.concatenate([np.empty(0, self._dtype), *self._kept])]
            return self._kept[0]
        return np.memmap(self._file, dtype=self._dtype, mode="r", shape=(self._length,))


class Column:
    """Collects integers one by one."""

    def __init__(self, scratch: Path | None = None) -> None:
        self._scratch, self._chunks = scratch, Chunks(np.int64, scratch)
        self._values, self._before = array("q"), 0

    def __len__(self) -> int:
        return self._before + len(self._values)

    def append(self, value: int) -> None:
        """One more number."""
        self._values.append(value)
        if len(self._values) >= CHUNK:
            self._empty()

    def _empty(self) -> None:
        self._before += len(self._values)
        self._chunks.add(np.frombuffer(self._values, dtype=np.int64))
        self._values = array("q")

    def build(self) -> Int64[np.ndarray, " M"]:
        """All numbers so far."""
        if self._values:
            self._empty()
        return self._chunks.build()

    def build_narrow(self) -> Int[np.ndarray, " M"]:
        """All numbers so far, none below 0, in the smallest type."""
        wide = self.build()
        narrow = Chunks(narrowest(int(wide.max(initial=0))), self._scratch)
        for piece in pieces(len(wide)):
            narrow.add(wide[piece])
        return narrow.build()


def pieces(length: int, size: int = CHUNK) -> Iterator[slice]:
    """Slices of at most `size` that cover `length` entries in order."""
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))


def narrowest(largest: int) -> type[np.generic]:
    """The smallest signed type that holds 0 to `largest`."""
    return next(t for t in (np.int16, np.int32, np.int64) if largest <= np.iinfo(t).max)


def looked_up(
    table: Int[np.ndarray, " k"],
    codes: Int[np.ndarray, " M"],
    scratch: Path | None = None,
) -> Int[np.ndarray, " M"]:
    """`table[codes]` in the smallest type, chunk after chunk."""
    found = Chunks(narrowest(int(table.max(initial=0))), scratch)
    for piece in pieces(len(codes)):
        found.add(table[codes[piece]])
    return found.build()


def disk_of(folder: Path) -> Path | None:
    """The folder, or the nearest one above it that exists."""
    above = (folder.absolute(), *folder.absolute().parents)
    try:
        return next((path for path in above if path.is_dir()), None)
    except OSError:  # no such folder can be
        return None


def _nameless(folder: Path | None) -> Any:
    """A file that has no name; None where none can be made."""
    try:
        return None if folder is None else tempfile.TemporaryFile(dir=folder)
    except OSError:
        return None
