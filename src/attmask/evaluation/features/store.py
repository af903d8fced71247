"""Features kept on disk: extracted once for each network, data set and way of reading.

CACHE/1f0c.../vectors.npy  rows.npy  key.json        written beside and renamed
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from attmask import atomic, distributed
from attmask.errors import UserError

VECTORS, ROWS, KEY = "vectors.npy", "rows.npy", "key.json"
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Stored:
    """The vectors of all pictures that could be read, mapped into memory, and which these are."""

    vectors: Float32[np.ndarray, "m W"]
    rows: Int64[np.ndarray, " m"]


@dataclass(frozen=True, eq=False)
class Share:
    """The rows that one process computes, and where it writes them."""

    rows: range
    vectors: Float32[np.ndarray, "m W"]
    readable: Bool[np.ndarray, " m"]


def default_cache() -> Path:
    """Where features of networks that belong to no run are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attmask"


class FeatureCache:
    """A folder of features; what does not fit its key to the letter is not used."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, key: Mapping[str, Any]) -> Path:
        """Where the features of this key lie, or would."""
        text = json.dumps(key, sort_keys=True)
        return self.folder / hashlib.sha256(text.encode()).hexdigest()[:32]

    def find(self, key: Mapping[str, Any], width: int) -> Stored | None:
        """The features of this key, if they are there and whole."""
        place = self.place(key)
        try:
            known = json.loads((place / KEY).read_text())
            vectors = np.load(place / VECTORS, mmap_mode="c")
            rows = np.load(place / ROWS)
        except (OSError, ValueError, EOFError):
            return None
        fits = known == json.loads(json.dumps(key)) and vectors.shape == (len(rows), width)
        if not fits or vectors.dtype != np.float32 or rows.dtype != np.int64:
            return None
        return Stored(vectors, rows)

    @contextmanager
    def writing(self, key: Mapping[str, Any], images: int, width: int) -> Iterator[Share]:
        """This process's share to fill; all shares are joined under the key if nothing failed.

        Each process writes a file of its own: what several write to one is not safe on every
        shared disk.
        """
        place = self.place(key)
        writer = distributed.from_main(atomic.new_writer() if distributed.is_main() else "")
        rank, world = distributed.rank(), distributed.world_size()
        rows = range(rank * images // world, (rank + 1) * images // world)
        try:
            with atomic.folder(place, replaces=lambda _: True, writer=writer) as part:
                vectors = _new_array(part / f"{rank}-{VECTORS}", len(rows), width)
                readable = np.zeros(len(rows), dtype=np.bool_)
                yield Share(rows, vectors, readable)
                vectors.flush()
                np.save(part / f"{rank}-{ROWS}", np.flatnonzero(readable).astype(np.int64))
                distributed.wait_for_all()
                if distributed.is_main():
                    _join(part, images, width, world)
                    (part / KEY).write_text(json.dumps(key, indent=1))
            distributed.wait_for_all()
        except OSError as fault:
            raise UserError(
                f"cannot keep features in {self.folder}: {fault.strerror or fault}; "
                "make room, or choose another folder with --cache"
            ) from fault


def _new_array(file: Path, rows: int, width: int) -> "np.memmap[Any, np.dtype[np.float32]]":
    """A file to be filled; its room is taken at once, because a mapped file that finds the disk
    full ends the process without a word."""
    array = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(rows, width))
    if hasattr(os, "posix_fallocate") and array.nbytes:
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array


def _join(folder: Path, images: int, width: int, shares: int) -> None:
    """The readable rows of all processes, one after the other, as one file."""
    found = [np.load(folder / f"{rank}-{ROWS}") for rank in range(shares)]
    rows = [share + rank * images // shares for rank, share in enumerate(found)]
    np.save(folder / ROWS, np.concatenate(rows))
    total = sum(map(len, rows))
    if shares == 1 and total == images:
        (folder / f"0-{VECTORS}").rename(folder / VECTORS)
        return
    whole, done = _new_array(folder / VECTORS, total, width), 0
    for rank, share in enumerate(found):
        part = np.load(folder / f"{rank}-{VECTORS}", mmap_mode="r")
        for begin in range(0, len(share), _ROWS_AT_ONCE):
            some = part[share[begin : begin + _ROWS_AT_ONCE]]
            whole[done : done + len(some)] = some
            done += len(some)
        (folder / f"{rank}-{VECTORS}").unlink()
    whole.flush()
