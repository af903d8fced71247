"""Images in a fixed order, wherever they are read from, and the class of each where it is known."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from jaxtyping import Int64

from attmask.errors import UserError

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
        """The stored picture; may raise OSError, anything else is a fault of ours."""
        ...

    @property
    def shards(self) -> Sequence[int]:
        """The rows where a shard begins, 0 the first; empty where pictures are single files."""
        ...


@runtime_checkable
class StoreOfFiles(Protocol):
    """A store that knows the files its pictures are in."""

    def paths(self, rows: Int64[np.ndarray, " m"]) -> Iterable[Path]:
        """The files that hold these pictures and perhaps others, in a fixed order."""
        ...


@dataclass(frozen=True, eq=False)
class Source:
    """Some pictures of a store, in order.

    `labels[i]` indexes `classes`; without labels, `labels` is None and `classes` is empty. Names
    are relative to `root`.
    """

    root: Path
    store: Store
    rows: Int64[np.ndarray, " M"]
    labels: Int64[np.ndarray, " M"] | None = None
    classes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        """What the store calls image `index`."""
        return self.store.name(int(self.rows[index]))

    def place(self, index: int) -> str:
        """Where image `index` lies, for people."""
        return str(self.root / self.name(index))

    def read(self, index: int) -> Raw:
        """Image `index` as it is stored; may raise OSError."""
        return self.store.read(int(self.rows[index]))

    def subset(self, indices: Sequence[int] | np.ndarray) -> "Source":
        """The images of these indices, in the order given, with the same classes."""
        kept = np.asarray(indices, dtype=np.int64)
        labels = None if self.labels is None else np.asarray(self.labels[kept])
        return replace(self, rows=np.asarray(self.rows[kept]), labels=labels)

    def with_own_classes(self) -> "Source":
        """The same images, with those classes alone that have an image among them."""
        if self.labels is None:
            return self
        used, labels = np.unique(self.labels, return_inverse=True)
        return replace(self, labels=labels, classes=tuple(self.classes[label] for label in used))

    def first_per_class(self, count: int) -> "Source":
        """The first `count` images of each class in file order (all, where a class has fewer)."""
        if self.labels is None:
            raise UserError(
                f"the first {count} images of each class were asked for, but the images in "
                f"{self.root} have no labels; leave per_class out or use one sub-folder a class"
            )
        if count < 1:
            raise UserError(f"per_class is {count}; it must be at least 1")
        return self.subset(np.flatnonzero(place_in_class(self.labels) < count))

    def first_percent(self, percent: float) -> "Source":
        """The first `percent` of each class in file order, at least one; of all without labels."""
        if not 0 < percent <= 100:
            raise UserError(f"percent is {percent}; it must be above 0 and at most 100")
        labels = np.zeros(len(self), dtype=np.int64) if self.labels is None else self.labels
        kept = np.maximum(1, np.rint(np.bincount(labels) * (percent / 100)))
        return self.subset(np.flatnonzero(place_in_class(labels) < kept[labels]))

    def split_holdout(self, fraction: float) -> tuple["Source", "Source"]:
        """Split into (bank, queries): about `fraction` of each class, evenly spaced, are queries.

        A class with two images or more gives at least one to each side; a single image is bank.
        """
        if not 0 < fraction < 1:
            raise UserError(f"a holdout of {fraction} is impossible; use a share between 0 and 1")
        labels = np.zeros(len(self), dtype=np.int64) if self.labels is None else self.labels
        asked = np.zeros(len(self), dtype=bool)
        members = np.argsort(labels, kind="stable")
        for ours in np.split(members, np.cumsum(np.bincount(labels))[:-1]):
            count = min(max(1, round(len(ours) * fraction)), len(ours) - 1)
            # The middle of each of `count` equal stretches, so that files of one day, one camera
            # or one film, which lie together, are on both sides.
            asked[[ours[(2 * j + 1) * len(ours) // (2 * count)] for j in range(count)]] = True
        return self.subset(np.flatnonzero(~asked)), self.subset(np.flatnonzero(asked))


def everything(root: Path, store: Store) -> Source:
    """All pictures of a store, in its order, without labels."""
    return Source(root, store, np.arange(len(store), dtype=np.int64))


def place_in_class(labels: Int64[np.ndarray, " M"]) -> Int64[np.ndarray, " M"]:
    """How many images of the same class come before each."""
    members = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    begins = np.cumsum(sizes) - sizes
    places = np.empty(len(labels), dtype=np.int64)
    places[members] = np.arange(len(labels)) - np.repeat(begins, sizes)
    return places
