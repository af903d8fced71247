"""The feature cache on disk: one entry per network, data set, crop and readout.

CACHE/1f0c.../77ab.../values.npy  rows.npy  key.json        written atomically
      |       readout
      network, images, crop, precision
"""

import errno
import hashlib
import io
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int64

from attmask import atomic, distributed
from attmask.errors import UserError

VALUES, ROWS, KEY = "values.npy", "rows.npy", "key.json"
_NUMBERS_AT_ONCE = 2**22  # 16 MB of fp32


@dataclass(frozen=True, eq=False)
class StoredFeatures:
    """The memory-mapped values of all readable images, and their rows in the source."""

    values: Float32[np.ndarray, "m ..."]
    rows: Int64[np.ndarray, " m"]


@dataclass(frozen=True, eq=False)
class Share:
    """The rows that one process computes, with the arrays to fill."""

    rows: range
    values: Float32[np.ndarray, "m ..."]
    readable: Bool[np.ndarray, " m"]


def default_cache() -> Path:
    """The cache folder for networks that do not belong to a run."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "attmask"


def digest(key: Any) -> str:
    """A short hash of a JSON value."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]


class FeatureStore:
    """A folder of features by key; an entry is used only if its whole key is equal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, key: Mapping[str, Any]) -> Path:
        """The folder of the features of this key; readouts of the same crops share a parent."""
        shown = {name: value for name, value in key.items() if name != "readout"}
        return self.folder / digest(shown) / digest(key["readout"])

    def find(
        self, key: Mapping[str, Any], shape: tuple[int, ...] | None = None
    ) -> StoredFeatures | None:
        """The features of this key, or None if they are missing, damaged or of another shape."""
        path = self.path(key)
        try:
            known = json.loads((path / KEY).read_text())
            values = np.load(path / VALUES, mmap_mode="c")
            rows = np.load(path / ROWS)
        except (OSError, ValueError, EOFError):
            return None
        fits = known == json.loads(json.dumps(key)) and len(values) == len(rows)
        if shape is not None and values.shape[1:] != shape:
            return None
        if not fits or values.dtype != np.float32 or rows.dtype != np.int64:
            return None
        return StoredFeatures(values, rows)

    def other_readouts(self, key: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the keys of all cached readouts of the same crops and network."""
        for file in sorted(self.path(key).parent.glob(f"*/{KEY}")):
            try:
                found = json.loads(file.read_text())
            except (OSError, ValueError):
                continue
            if isinstance(found, dict) and isinstance(found.get("readout"), dict):
                yield found

    @contextmanager
    def writing(
        self, key: Mapping[str, Any], images: int, shape: tuple[int, ...]
    ) -> Iterator[Share]:
        """Yield this process's share to fill; afterwards all shares are joined under the key.

        Each process writes its own file, because concurrent writes to one file are not safe on
        every shared disk.
        """
        path = self.path(key)
        writer = distributed.from_main(atomic.new_writer() if distributed.is_main() else "")
        rank, world = distributed.rank(), distributed.world_size()
        rows = distributed.share_of(images)
        joined, failed = 0, None

        def is_better(_: Path) -> bool:
            there = self.find(key, shape)
            return there is None or len(there.rows) < joined

        try:
            check_room(self.folder, min(world, 2) * 4 * images * math.prod(shape))
            with atomic.folder(path, replaces=is_better, writer=writer) as part:
                if distributed.is_main():
                    self._clean(part)
                values = _new_array(part / f"{rank}-{VALUES}", (len(rows), *shape))
                readable = np.zeros(len(rows), dtype=np.bool_)
                try:
                    yield Share(rows, values, readable)
                except OSError as fault:
                    failed = fault
                    raise
                values.flush()
                np.save(part / f"{rank}-{ROWS}", np.flatnonzero(readable).astype(np.int64))
                distributed.wait_for_all()
                if distributed.is_main():
                    joined = _join(part, images, shape, world)
                    (part / KEY).write_text(json.dumps(key, indent=1))
            distributed.wait_for_all()
        except OSError as fault:
            if fault is failed:  # of reading images, not of writing features
                raise
            raise UserError(
                f"cannot write features to {self.folder}: {fault.strerror or fault}; "
                "make room, or choose another folder with --cache"
            ) from fault
        finally:
            with suppress(OSError):  # the folder is not empty
                path.parent.rmdir()

    def _clean(self, own: Path) -> None:
        """Remove what killed evaluations have left for any crop."""
        folders = {left.parent for left in self.folder.glob("*/.part-*")}
        atomic.remove_leftovers(own, folders)
        for folder in folders - {own.parent}:
            with suppress(OSError):  # it is not empty
                folder.rmdir()


def check_room(folder: Path, needed: int) -> None:
    """Refuse now what would not fit later: several processes write shares and then join them."""
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if shutil.disk_usage(there).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _new_array(file: Path, shape: tuple[int, ...]) -> "np.memmap[Any, np.dtype[np.float32]]":
    """Create a memory-mapped file; its disk space is allocated at once, because writing to a
    mapped file on a full disk kills the process."""
    array = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
    if hasattr(os, "posix_fallocate") and array.nbytes:
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array


def _join(folder: Path, images: int, shape: tuple[int, ...], shares: int) -> int:
    """Join the readable rows of all processes into one file."""
    found = [np.load(folder / f"{rank}-{ROWS}") for rank in range(shares)]
    rows = [share + rank * images // shares for rank, share in enumerate(found)]
    np.save(folder / ROWS, np.concatenate(rows))
    total = sum(map(len, rows))
    if shares == 1:
        _keep_rows(folder / f"0-{VALUES}", rows[0], shape)
        (folder / f"0-{VALUES}").rename(folder / VALUES)
        return total
    whole, done = _new_array(folder / VALUES, (total, *shape)), 0
    at_once = max(1, _NUMBERS_AT_ONCE // max(1, math.prod(shape)))
    for rank, share in enumerate(found):
        part = np.load(folder / f"{rank}-{VALUES}", mmap_mode="r")
        for begin in range(0, len(share), at_once):
            some = part[share[begin : begin + at_once]]
            whole[done : done + len(some)] = some
            done += len(some)
        (folder / f"{rank}-{VALUES}").unlink()
    whole.flush()
    return total


def _keep_rows(file: Path, rows: Int64[np.ndarray, " m"], shape: tuple[int, ...]) -> None:
    """Keep some rows of an array, in ascending order, without room for a second one."""
    array = np.lib.format.open_memmap(file, mode="r+")
    if len(rows) == len(array):
        return
    at_once = max(1, _NUMBERS_AT_ONCE // max(1, math.prod(shape)))
    for begin in range(0, len(rows), at_once):
        some = rows[begin : begin + at_once]
        array[begin : begin + len(some)] = array[some]
    array.flush()
    header = io.BytesIO()
    described = {"descr": "<f4", "fortran_order": False, "shape": (len(rows), *shape)}
    np.lib.format.write_array_header_1_0(header, described)
    with file.open("r+b") as opened:
        np.lib.format.read_magic(opened)
        np.lib.format.read_array_header_1_0(opened)
        assert opened.tell() == len(header.getvalue()), "NumPy leaves room for any number of rows"
        opened.seek(0)
        opened.write(header.getvalue())
        opened.truncate(opened.tell() + 4 * len(rows) * math.prod(shape))
