"""Read a pickle of dicts, lists, texts and arrays; nothing in it runs."""

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from attmask.errors import UserError
from attmask.reading import check_regular

_LONG = 1 << 10  # bytes; shorter texts are not worth mapping


class StoredArray:
    """An array as the pickle describes it; NumPy sees it only after it was checked."""

    def __init__(self, *_: object) -> None:
        self.state: object = None
        self.offset: int | None = None
        """Where its numbers begin in the file, if they are stored there as they are."""

    def __setstate__(self, state: object) -> None:
        """Keep what NumPy would be made of: version, shape, type, order, numbers."""
        self.state = state

    def content(self) -> tuple[tuple[int, ...], bytes]:
        """The shape and the numbers of an array of bytes; ValueError if it is another one."""
        if not isinstance(self.state, tuple) or len(self.state) != 5:
            raise ValueError("it has an array of an unknown form")
        _, shape, kind, is_fortran, raw = self.state
        if not isinstance(kind, _Type) or kind.name not in ("u1", "uint8") or is_fortran:
            raise ValueError("it has an array of other numbers than bytes")
        if not isinstance(raw, bytes) or not isinstance(shape, tuple):
            raise ValueError("it has an array of an unknown form")
        if not all(isinstance(side, int) and side >= 0 for side in shape):
            raise ValueError(f"it has an array of shape {shape}")
        return shape, raw


class _Type:
    """The type of an array, by its name alone."""

    def __init__(self, name: object = "", *_: object) -> None:
        self.name = text(name)

    def __setstate__(self, state: object) -> None:
        """Bytes have no order, and other types are not read."""


class _Encoded(bytes):
    """Bytes as Python 3 writes them for Python 2: the encoded form of a text."""

    def __new__(cls, content: str, encoding: str = "latin1") -> "_Encoded":
        if encoding != "latin1":
            raise ValueError(f"it has bytes in the encoding {encoding!r}")
        return super().__new__(cls, content.encode("latin1"))

    def __setstate__(self, state: object) -> None:
        raise ValueError("it changes bytes")


# Every one has a __setstate__ of its own, so that a pickle cannot set attributes of the class.
_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): StoredArray,
    ("numpy._core.multiarray", "_reconstruct"): StoredArray,
    ("numpy", "ndarray"): StoredArray,
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _Encoded,
}


class _ForbiddenError(Exception):
    """The pickle names something that is not a part of numbers and texts."""


class _Noting:
    """A file that notes where each long read began."""

    def __init__(self, opened: IO[bytes]) -> None:
        self._opened, self._size = opened, os.fstat(opened.fileno()).st_size
        self._noted: list[tuple[bytes, int]] = []

    def read(self, size: int) -> bytes:
        if size > self._size:  # whatever the pickle says, no memory is taken for it
            raise EOFError
        begin = self._opened.tell() if size >= _LONG else 0
        content = self._opened.read(size)
        if size >= _LONG:
            self._noted.append((content, begin))
        return content

    def readline(self) -> bytes:
        return self._opened.readline()

    def offset_of(self, content: bytes) -> int | None:
        """Where these very bytes were read from; None if they were made of others."""
        return next((begin for noted, begin in self._noted if noted is content), None)


# The Unpickler in C makes a table as long as a pickle asks for, up to all memory.
class _Reader(pickle._Unpickler):
    """An unpickler that knows arrays and nothing else that has a name."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a part of an array."""
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise _ForbiddenError(f"{module}.{name}") from None


@dataclass(frozen=True)
class Pickled:
    """The dictionary of a pickle, its keys as text."""

    file: Path
    entries: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        if key not in self.entries:
            held = ", ".join(sorted(self.entries)[:8]) or "nothing"
            raise UserError(f"{self.file} has no {key}, only {held}; download it again")
        return self.entries[key]


def read_pickle(file: Path) -> Pickled:
    """The dictionary in a file that Python 2 or 3 has pickled; texts of Python 2 are bytes."""
    check_regular(file)
    try:
        with file.open("rb") as opened:
            noting = _Noting(opened)
            content = _Reader(noting, encoding="bytes").load()
    except OSError:
        raise
    except _ForbiddenError as fault:
        raise UserError(
            f"{file} names {fault}, which could run any code, and was not read; download it again"
        ) from fault
    except Exception as fault:  # a damaged pickle can raise anything
        raise UserError(f"{file} is damaged or not a pickle; download it again") from fault
    if not isinstance(content, dict):
        raise UserError(f"{file} has no dictionary; download it again")
    for array in content.values():
        if isinstance(array, StoredArray) and isinstance(array.state, tuple) and array.state:
            array.offset = noting.offset_of(array.state[-1])
    return Pickled(file, {text(key): value for key, value in content.items()})


def text(value: object) -> str:
    """A text of Python 2 or 3."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
