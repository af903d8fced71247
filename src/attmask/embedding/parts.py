"""Features on disk in parts, so that a killed process goes on where it was.

FILE.parts/key.json                                        everything that the features depend on
           rows-000000000000-000000000640.npz  ...         written atomically, in any order
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
import torch
from jaxtyping import Bool, Int64

from attmask import atomic, distributed
from attmask.data.stores.index import is_index
from attmask.data.stores.mapped import map_npz, save_npz
from attmask.embedding.embedder import ReadRows
from attmask.errors import UserError

SECONDS_OF_A_PART = 10.0
"""About as long as the work that a kill can lose."""
_BYTES_OF_A_PART = 1 << 25
_KEY = "key.json"
_NAME = re.compile(r"rows-(\d{12,})-(\d{12,})\.npz")
_DAMAGE = (OSError, ValueError, KeyError, EOFError, BadZipFile)
_HASH = re.compile(r"[0-9a-f]{64}")


class Part(NamedTuple):
    """The rows of one file."""

    rows: range
    file: Path


@dataclass(frozen=True)
class Parts:
    """The folder of the parts."""

    folder: Path

    def begin(self, key: Mapping[str, Any]) -> None:
        """Use the folder for these features; parts of other features are an error."""
        known = read_json(self.folder / _KEY)
        if known is None:
            atomic.write(self.folder / _KEY, json.dumps(key, indent=1) + "\n")
        elif known != key:
            raise UserError(
                f"{self.folder} holds unfinished features of other settings "
                f"({differences(key, known)}); remove it or choose another --out"
            )

    def belongs_to(self, key: Mapping[str, Any]) -> bool:
        """Whether the folder holds parts of these features."""
        return bool(read_json(self.folder / _KEY) == key)

    @contextmanager
    def without_a_lone_index(self) -> Iterator[None]:
        """Remove the folder at the end if it holds no more than the index of the images.

        Several processes list the images through it before anything else is known to be good.
        """
        try:
            yield
        finally:
            left = list(self.folder.iterdir()) if self.folder.is_dir() else []
            if left and distributed.launched_main() and all(map(is_index, left)):
                atomic.remove_folder(self.folder)

    def done(self) -> list[Part]:
        """The parts in order; where two overlap, the first one has the rows."""
        named = ((_NAME.fullmatch(file.name), file) for file in self.folder.glob("rows-*.npz"))
        found = sorted(
            ((int(name[1]), int(name[2]), file) for name, file in named if name is not None),
            key=lambda part: (part[0], -part[1]),
        )
        parts, reached = list[Part](), 0
        for first, end, file in found:
            if end > reached:
                parts.append(Part(range(max(first, reached), end), file))
                reached = end
        return parts

    def missing(self, rows: range) -> list[range]:
        """The rows of a range that no part has."""
        gaps, reached = list[range](), rows.start
        for part in self.done():
            if part.rows.stop <= reached or part.rows.start >= rows.stop:
                continue
            if part.rows.start > reached:
                gaps.append(range(reached, part.rows.start))
            reached = part.rows.stop
        if reached < rows.stop:
            gaps.append(range(reached, rows.stop))
        return gaps

    def write(
        self, rows: range, readable: Bool[np.ndarray, " k"], features: np.ndarray, unread: list[str]
    ) -> None:
        """Write one part; `unread` has a line for each image that cannot be read."""
        text = np.frombuffer(json.dumps(unread).encode(), dtype=np.uint8)
        arrays = {"readable": readable, "features": features, "unreadable": text}
        save_npz(self.folder / f"rows-{rows.start:012}-{rows.stop:012}.npz", arrays)

    def kept(self, part: Part) -> tuple[Int64[np.ndarray, " m"], np.ndarray]:
        """The rows of the readable images of a part, and their features, mapped."""
        try:
            readable = map_npz(part.file, "readable")
            features = map_npz(part.file, "features")
        except _DAMAGE as fault:
            raise _damaged(part.file, fault) from fault
        rows = np.flatnonzero(readable).astype(np.int64) + part.rows.stop - len(readable)
        if len(rows) != len(features):
            raise _damaged(part.file, "rows are missing")
        own = rows >= part.rows.start  # the others are those of an overlapping part
        return rows[own], features[np.flatnonzero(own)[0] :] if own.any() else features[:0]

    def unread(self, part: Part) -> Int64[np.ndarray, " m"]:
        """The rows of the images of a part that could not be read; all, if it is damaged."""
        try:
            readable = map_npz(part.file, "readable")
        except _DAMAGE:
            return np.arange(part.rows.start, part.rows.stop)
        return np.flatnonzero(~readable).astype(np.int64) + part.rows.stop - len(readable)

    def unreadable(self) -> Iterator[str]:
        """The lines of the images that cannot be read: path, tab, reason."""
        for part in self.done():
            try:
                lines: list[str] = json.loads(map_npz(part.file, "unreadable").tobytes())
            except _DAMAGE as fault:
                raise _damaged(part.file, fault) from fault
            yield from lines


class PartWriter:
    """Collects batches and writes a part every ten seconds, or when it is large."""

    def __init__(self, parts: Parts, dtype: str) -> None:
        self.parts, self.dtype = parts, dtype
        self._rows, self._began = range(0), time.monotonic()
        self._readable: list[Bool[np.ndarray, " b"]] = []
        self._features: list[np.ndarray] = []
        self._unread: list[str] = []

    def add(self, batch: ReadRows, unread: list[str]) -> None:
        """Add the rows that follow those before."""
        self._rows = range(self._rows.start if self._rows else batch.rows.start, batch.rows.stop)
        self._readable.append(batch.readable)
        self._features.append(stored(batch.features, self.dtype))
        self._unread += unread
        large = sum(features.nbytes for features in self._features) >= _BYTES_OF_A_PART
        if large or time.monotonic() - self._began >= SECONDS_OF_A_PART:
            self.flush()

    def flush(self) -> None:
        """Write what was collected."""
        if self._rows:
            readable, features = np.concatenate(self._readable), np.concatenate(self._features)
            self.parts.write(self._rows, readable, features, self._unread)
        self._rows, self._began = range(0), time.monotonic()
        self._readable, self._features, self._unread = [], [], []


def stored(features: torch.Tensor, dtype: str) -> np.ndarray:
    """Features in another number format; NumPy has no bfloat16, so that is kept as its bits."""
    if dtype == "float32":
        return features.numpy()
    if dtype == "bfloat16":
        return features.bfloat16().view(torch.int16).numpy().view(np.uint16)
    half = features.half()
    if not bool(half.isfinite().all()):
        raise UserError(
            f"a feature of {float(features.abs().max()):g} is beyond float16; use --dtype float32"
        )
    return half.numpy()


def read_json(file: Path) -> Any:
    """The contents of a JSON file; None if there is none."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """What differs between two keys, in words."""
    mine, other = _flat(ours), _flat(theirs)
    told = []
    for name in sorted(mine.keys() | other.keys()):
        value, there = mine.get(name), other.get(name)
        if value == there:
            continue
        hashed = any(_HASH.fullmatch(str(found)) for found in (value, there))
        told.append(f"other {name}" if hashed else f"{name}: {value}, there {there}")
    return "; ".join(told)


def _flat(key: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in key.items():
        called = f"{above}{name}"
        flat |= _flat(value, f"{called}.") if isinstance(value, dict) else {called: value}
    return flat


def _damaged(file: Path, why: object) -> UserError:
    return UserError(f"{file} is damaged ({why}); remove it, then start the same command again")
