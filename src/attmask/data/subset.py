"""Which images of many are taken: always the same ones, of all images or of each class.

Labels are read chunk after chunk, so that a billion of them need no memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Int, Int64

from attmask.data.config import DataConfig
from attmask.data.kept import kept_arrays
from attmask.data.source import LARGE, Source
from attmask.data.stores.columns import Chunks, pieces
from attmask.errors import UserError

Choice = Callable[[Int64[np.ndarray, " k"], Int64[np.ndarray, " k"]], Bool[np.ndarray, " k"]]
"""Which images of a chunk are taken, by their classes and their positions in their classes."""


def evenly_spaced(images: int, count: int) -> Int64[np.ndarray, " count"]:
    """`count` of `images` indices, in order, as evenly spaced as can be, the first included."""
    return np.arange(count, dtype=np.int64) * images // max(count, 1)


def spread_evenly(
    labels: Sequence[int] | np.ndarray | None, images: int, limit: int | None
) -> list[int]:
    """Indices of at most `limit` images, as equal in number per class and as evenly spaced in
    each class as can be, in ascending order."""
    if limit is None or limit >= images:
        return list(range(images))
    if limit < 1:
        raise UserError(f"a limit of {limit} images was given; use at least 1")
    if labels is None:
        return list(map(int, evenly_spaced(images, limit)))
    labels = np.asarray(labels)
    sizes, firsts = _sizes_and_firsts(labels)
    # The smallest classes first: what they cannot fill is shared by the larger ones. Of classes
    # of one size, the one that appears first.
    by_size = sorted(np.flatnonzero(sizes).tolist(), key=lambda c: (int(sizes[c]), int(firsts[c])))
    quotas, left = np.zeros_like(sizes), limit
    for position, one in enumerate(by_size):
        quotas[one] = min(int(sizes[one]), left // (len(by_size) - position))
        left -= int(quotas[one])

    def is_taken(
        classes: Int64[np.ndarray, " k"], positions: Int64[np.ndarray, " k"]
    ) -> Bool[np.ndarray, " k"]:
        size, quota = sizes[classes], quotas[classes]
        nearest = -(-positions * quota // size)  # the only one that may lie at this position
        is_wanted = (nearest < quota) & (nearest * size // np.maximum(quota, 1) == positions)
        return np.asarray(is_wanted)

    return [int(index) for chosen in _chosen(labels, is_taken) for index in chosen]


def first_per_class(source: Source, count: int) -> Source:
    """The first `count` images of each class in file order (all, where a class has fewer)."""
    if source.labels is None:
        raise UserError(
            f"the first {count} images of each class were asked for, but the images in "
            f"{source.root} have no labels; leave per_class out or use one sub-folder a class"
        )
    if count < 1:
        raise UserError(f"per_class is {count}; it must be at least 1")
    return _subset(source, f"per_class={count}", lambda classes, positions: positions < count)


def first_percent(source: Source, percent: float) -> Source:
    """The first `percent` of each class in file order, at least one; of all without labels."""
    if not 0 < percent <= 100:
        raise UserError(f"percent is {percent}; it must be above 0 and at most 100")
    if source.labels is None:
        return source.first(int(_share(np.array([len(source)]), percent)[0]))
    kept = _share(_sizes_and_firsts(source.labels)[0], percent)
    return _subset(
        source, f"percent={percent}", lambda classes, positions: positions < kept[classes]
    )


def trained_on(source: Source, data: DataConfig) -> Source:
    """The images that data.percent or data.per_class select; all if per_class lacks labels."""
    if data.percent is not None:
        return first_percent(source, data.percent)
    if data.per_class is not None and source.labels is not None:
        return first_per_class(source, data.per_class)
    return source


def _share(sizes: Int64[np.ndarray, " k"], percent: float) -> Int64[np.ndarray, " k"]:
    return np.maximum(1, np.rint(sizes * (percent / 100))).astype(np.int64)


def thinned(source: Source, limit: int) -> Source:
    """A source of many images as some of them, spread evenly; others are left as they are."""
    if len(source) <= LARGE:
        return source
    return source.subset(spread_evenly(source.labels, len(source), limit))


def split_holdout(source: Source, fraction: float) -> tuple[Source, Source]:
    """Split into (bank, queries): about `fraction` of each class, evenly spaced, are queries.

    A class with two images or more gives at least one to each side; a single image is bank.
    """
    is_query = held_out(source.labels, len(source), fraction)
    return source.subset(np.flatnonzero(~is_query)), source.subset(np.flatnonzero(is_query))


def held_out(
    labels: Int[np.ndarray, " M"] | None, images: int, fraction: float
) -> Bool[np.ndarray, " M"]:
    """Which images `split_holdout` makes queries; without labels, an evenly spaced part of all."""
    if not 0 < fraction < 1:
        raise UserError(f"a holdout of {fraction} is impossible; use a fraction between 0 and 1")
    is_query = np.zeros(images, dtype=bool)
    for members in _members(labels, images):
        count = min(max(1, round(len(members) * fraction)), len(members) - 1)
        # The middle of each of `count` equal stretches, so that files of one day, one camera
        # or one film, which lie together, are on both sides.
        middles = (2 * np.arange(count) + 1) * len(members) // (2 * max(count, 1))
        is_query[members[middles]] = True
    return is_query


def position_in_class(labels: Int[np.ndarray, " M"]) -> Int64[np.ndarray, " M"]:
    """How many images of the same class come before each."""
    members = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    begins = np.cumsum(sizes) - sizes
    positions = np.empty(len(labels), dtype=np.int64)
    positions[members] = np.arange(len(labels)) - np.repeat(begins, sizes)
    return positions


def _subset(source: Source, called: str, is_taken: Choice) -> Source:
    """The chosen images of a source; of many, rows and labels are kept in a file."""
    labels = source.labels
    assert labels is not None

    def make() -> dict[str, np.ndarray]:
        folder = None if source.listing is None else source.listing.folder
        rows, classes = Chunks(np.int64, folder), Chunks(labels.dtype.type, folder)
        for indices in _chosen(labels, is_taken):
            rows.add(source.rows_of(indices))
            classes.add(labels[indices])
        return {"rows": rows.build(), "labels": classes.build()}

    is_kept = len(source) > LARGE and source.is_whole
    made = kept_arrays(source, called, make) if is_kept else make()
    return replace(source, rows=made["rows"], labels=made["labels"])


def _chosen(labels: Int[np.ndarray, " M"], is_taken: Choice) -> Iterator[Int64[np.ndarray, " k"]]:
    """The indices of the images that are taken, chunk after chunk."""
    before = np.zeros(0, dtype=np.int64)  # images of each class in earlier chunks
    for piece in pieces(len(labels)):
        classes = labels[piece].astype(np.int64)
        here = np.bincount(classes, minlength=len(before))
        before = np.pad(before, (0, len(here) - len(before)))
        positions = before[classes] + position_in_class(classes)
        yield np.flatnonzero(is_taken(classes, positions)) + piece.start
        before += here


def _sizes_and_firsts(
    labels: Int[np.ndarray, " M"],
) -> tuple[Int64[np.ndarray, " classes"], Int64[np.ndarray, " classes"]]:
    """The number of images of each class, and the index of the first one."""
    sizes, firsts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for piece in pieces(len(labels)):
        there, first, counts = np.unique(labels[piece], return_index=True, return_counts=True)
        more = max(0, int(there[-1]) + 1 - len(sizes))
        sizes, firsts = np.pad(sizes, (0, more)), np.pad(firsts, (0, more))
        is_new = sizes[there] == 0
        firsts[there[is_new]] = first[is_new] + piece.start
        sizes[there] += counts
    return sizes, firsts


def _members(labels: Int[np.ndarray, " M"] | None, images: int) -> list[Int64[np.ndarray, " m"]]:
    """The indices of the images of each class that has any, in order; without labels, of all."""
    if labels is None:
        return [np.arange(images)] if images else []
    by_class = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels))
    return [some for some in np.split(by_class, ends[:-1]) if len(some)]
