"""Features kept on disk: extracted once for each network, data set and way of reading.

CACHE/1f0c.../vectors.npy  readable.npy  key.json        written beside and renamed
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32

from attmask import distributed
from attmask.errors import UserError

VECTORS, READABLE, KEY = "vectors.npy", "readable.npy", "key.json"
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, eq=False)
class Stored:
    """The vectors of all pictures of a source, mapped into memory, and which could be read."""

    vectors: Float32[np.ndarray, "M W"]
    readable: Bool[np.ndarray, " M"]


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

    def find(self, key: Mapping[str, Any], images: int, width: int) -> Stored | None:
        """The features of this key, if they are there and whole."""
        place = self.place(key)
        try:
            known = json.loads((place / KEY).read_text())
            vectors = np.load(place / VECTORS, mmap_mode="c")
            readable = np.load(place / READABLE)
        except (OSError, ValueError, EOFError):
            return None
        fits = known == json.loads(json.dumps(key)) and vectors.shape == (images, width)
        if not fits or vectors.dtype != np.float32 or readable.shape != (images,):
            return None
        return Stored(vectors, readable)

    @contextmanager
    def writing(self, key: Mapping[str, Any], images: int, width: int) -> Iterator["Share"]:
        """This process's share to fill; all shares are joined under the key if nothing failed.

        Each process writes a file of its own: what several write to one is not safe on every
        shared disk.
        """
        place = self.place(key)
        part = place.with_name(f".part-{place.name}-{distributed.from_main(os.getpid())}")
        rank, world = distributed.rank(), distributed.world_size()
        rows = range(rank * images // world, (rank + 1) * images // world)
        try:
            part.mkdir(parents=True, exist_ok=True)
            vectors = np.lib.format.open_memmap(
                part / f"{rank}-{VECTORS}",
                mode="w+",
                dtype=np.float32,
                shape=(len(rows), width),
            )
            readable = np.zeros(len(rows), dtype=np.bool_)
            yield Share(rows, vectors, readable)
            vectors.flush()
            np.save(part / f"{rank}-{READABLE}", readable)
            distributed.wait_for_all()
            if distributed.is_main():
                _join(part, VECTORS, world)
                _join(part, READABLE, world)
                (part / KEY).write_text(json.dumps(key, indent=1))
                shutil.rmtree(place, ignore_errors=True)
                part.rename(place)
            distributed.wait_for_all()
        except OSError as fault:
            raise UserError(
                f"cannot keep features in {self.folder}: {fault.strerror or fault}; "
                "make room, or choose another folder with --cache"
            ) from fault
        finally:
            if distributed.is_main():
                shutil.rmtree(part, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Share:
    """The rows that one process computes, and where it writes them."""

    rows: range
    vectors: Float32[np.ndarray, "m W"]
    readable: Bool[np.ndarray, " m"]


def _join(folder: Path, name: str, shares: int) -> None:
    """The arrays of all processes, one after the other, as one file."""
    if shares == 1:
        (folder / f"0-{name}").rename(folder / name)
        return
    parts = [np.load(folder / f"{rank}-{name}", mmap_mode="r") for rank in range(shares)]
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    whole = np.lib.format.open_memmap(folder / name, mode="w+", dtype=parts[0].dtype, shape=shape)
    first = 0
    for part in parts:
        for begin in range(0, len(part), _ROWS_AT_ONCE):
            rows = part[begin : begin + _ROWS_AT_ONCE]
            whole[first : first + len(rows)] = rows
            first += len(rows)
    whole.flush()
    for rank in range(shares):
        (folder / f"{rank}-{name}").unlink()
