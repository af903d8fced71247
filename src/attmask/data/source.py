"""Images in a fixed order, from any store, with their classes if known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Int, Int64

LARGE = 1 << 24
"""Tables of more images than this would take too much memory in every process. Up to here, orders
and hashes are what they were in earlier versions."""

Raw: TypeAlias = bytes | np.ndarray
"""A picture as it is stored: an encoded file, or pixels (H W or H W C, of any number type)."""


@runtime_checkable
class Store(Protocol):
    """Where pictures are read from; cheap to pickle, because every worker gets a copy."""

    def __len__(self) -> int: ...

    def name(self, row: int) -> str:
        """Unique and stable, for instance `cat/1.jpg`, `shard-3.tar/0001.jpg`, `x.npz[12]`."""
        ...

    def read(self, row: int) -> Raw:
        """The stored picture; may raise OSError."""
        ...

    @property
    def shards(self) -> Sequence[int]:
        """The rows where a shard begins, 0 the first; empty where pictures are single files."""
        ...


@runtime_checkable
class StoreOfFiles(Protocol):
    """A store that knows the files its pictures are in."""

    def paths(self, rows: Int64[np.ndarray, " m"] | range) -> Iterable[Path]:
        """The files that hold these pictures and perhaps others, in a fixed order."""
        ...


@dataclass(eq=False)
class Listing:
    """All images that a scan has listed, with what is kept about them between starts."""

    store: Store
    labels: Int[np.ndarray, " N"] | None = None
    folder: Path | None = None
    """The folder of the index, if there is one: large arrays may be kept beside it."""
    fingerprint: str | None = None
    """The hash of all names and classes, if known."""


@dataclass(frozen=True, eq=False)
class Source:
    """Some pictures of a store, in order.

    `rows` is a range if all pictures are taken, so that a billion of them take no memory.
    `labels[i]` indexes `classes`; without labels, `labels` is None and `classes` is empty. Names
    are relative to `root`. `listing` is the scan that the source was made of, or that of a larger
    source of which it is a subset.
    """

    root: Path
    store: Store
    rows: Int64[np.ndarray, " M"] | range
    labels: Int[np.ndarray, " M"] | None = None
    classes: Sequence[str] = ()
    listing: Listing | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        """The name of image `index` in its store."""
        return self.store.name(int(self.rows[index]))

    def place(self, index: int) -> str:
        """The path of image `index`, for messages."""
        return str(self.root / self.name(index))

    def read(self, index: int) -> Raw:
        """Image `index` as it is stored; may raise OSError."""
        return self.store.read(int(self.rows[index]))

    @property
    def is_whole(self) -> bool:
        """Whether the source is all that was listed, with the labels that were listed."""
        listing = self.listing
        return (
            listing is not None
            and self.store is listing.store
            and self.labels is listing.labels
            and isinstance(self.rows, range)
            and self.rows == range(len(listing.store))
        )

    def subset(self, indices: Sequence[int] | np.ndarray) -> "Source":
        """The images of these indices, in the order given, with the same classes."""
        kept = np.asarray(indices, dtype=np.int64)
        labels = None if self.labels is None else np.asarray(self.labels[kept])
        return replace(self, rows=self.rows_of(kept), labels=labels)

    def first(self, count: int) -> "Source":
        """The first `count` images."""
        labels = None if self.labels is None else self.labels[:count]
        return replace(self, rows=self.rows[:count], labels=labels)

    def rows_of(self, indices: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
        """The rows of the store that hold these images."""
        rows = self.rows
        if not isinstance(rows, range):
            return np.asarray(rows[indices])
        if len(indices) and not -len(rows) <= indices.min() <= indices.max() < len(rows):
            raise IndexError(f"an index is not in a source of {len(rows)} images")
        return rows.start + np.where(indices < 0, indices + len(rows), indices) * rows.step

    def with_own_classes(self) -> "Source":
        """The same images, without classes that have no image."""
        if self.labels is None:
            return self
        used, labels = np.unique(self.labels, return_inverse=True)
        return replace(self, labels=labels, classes=tuple(self.classes[label] for label in used))


def everything(root: Path, store: Store) -> Source:
    """All pictures of a store, in its order, without labels."""
    return Source(root, store, range(len(store)))
