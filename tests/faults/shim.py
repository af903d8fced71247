"""The shim in C that journals what a process does to a folder, or makes it fail."""

import ctypes
import enum
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shim.c")


class Kind(enum.IntEnum):
    """What a call does; the numbers are those of shim.c."""

    OPEN = 1
    WRITE = 2
    TRUNCATE = 3
    FLUSH = 4
    RENAME = 5
    UNLINK = 6
    RMDIR = 7
    MKDIR = 8
    MAP = 9
    LINK = 10
    MARK = 11


@dataclass(frozen=True)
class Call:
    """One call that succeeded, or a mark of the test."""

    kind: Kind
    created: bool
    inode: int
    offset: int
    """Where it wrote; the new length; whether opening emptied the file."""
    first: str
    second: str
    data: bytes


def build(folder: Path) -> Path:
    """Compile the shim; skips the test where that cannot be."""
    library = folder / "shim.so"
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler to build tests/faults/shim.c")
    words = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"tests/faults/shim.c cannot be built here: {done.stderr.splitlines()[0]}")
    return library


class Shim:
    """The shim in this process: it cannot be taken out again, so this should be a child."""

    def __init__(self, library: Path, folder: Path, journal: Path | None = None) -> None:
        self._library = ctypes.CDLL(str(library))
        where = b"" if journal is None else os.fsencode(journal)
        fault = self._library.shim_watch(os.fsencode(folder), where)
        if fault:
            raise OSError(fault, f"seccomp is refused: {os.strerror(fault)}")

    def mark(self, line: str) -> None:
        """Put a line into the journal."""
        self._library.shim_mark(line.encode())

    def fail(self, number: int, error: int, *, on: bool, kinds: tuple[Kind, ...]) -> None:
        """Fail a call, counted from 0 among those of some kinds, and perhaps all later ones."""
        bits = sum(1 << kind for kind in kinds)
        self._library.shim_fail(ctypes.c_long(number), error, on, bits)

    def count(self) -> int:
        """The calls of these kinds so far."""
        return int(self._library.shim_count())


_HEAD = struct.Struct("<IIIIQQQq")


def read_journal(journal: Path) -> Iterator[Call]:
    """The calls in their order."""
    data, at = journal.read_bytes(), 0
    while at < len(data):
        what, first, second, created, inode, offset, length, _ = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        parts = []
        for size in (first, second, length):
            parts.append(data[at : at + size])
            at += size
        names = os.fsdecode(parts[0]), os.fsdecode(parts[1])
        yield Call(Kind(what), bool(created), inode, offset, *names, parts[2])
