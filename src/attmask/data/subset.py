"""Which images of many are taken: always the same ones, of all images or of each class."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from attmask.data.source import Source
from attmask.errors import UserError


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
    chosen: list[int] = []
    # The smallest classes first: what they cannot fill is shared by the larger ones. Of classes
    # of one size, the one that appears first.
    by_size = sorted(_members(_or_one_class(labels, images)), key=lambda m: (len(m), int(m[0])))
    for position, members in enumerate(by_size):
        quota = min(len(members), (limit - len(chosen)) // (len(by_size) - position))
        chosen += members[evenly_spaced(len(members), quota)].tolist()
    return sorted(chosen)


def first_per_class(source: Source, count: int) -> Source:
    """The first `count` images of each class in file order (all, where a class has fewer)."""
    if source.labels is None:
        raise UserError(
            f"the first {count} images of each class were asked for, but the images in "
            f"{source.root} have no labels; leave per_class out or use one sub-folder a class"
        )
    if count < 1:
        raise UserError(f"per_class is {count}; it must be at least 1")
    return source.subset(np.flatnonzero(position_in_class(source.labels) < count))


def first_percent(source: Source, percent: float) -> Source:
    """The first `percent` of each class in file order, at least one; of all without labels."""
    if not 0 < percent <= 100:
        raise UserError(f"percent is {percent}; it must be above 0 and at most 100")
    labels = _or_one_class(source.labels, len(source))
    kept = np.maximum(1, np.rint(np.bincount(labels) * (percent / 100)))
    return source.subset(np.flatnonzero(position_in_class(labels) < kept[labels]))


def split_holdout(source: Source, fraction: float) -> tuple[Source, Source]:
    """Split into (bank, queries): about `fraction` of each class, evenly spaced, are queries.

    A class with two images or more gives at least one to each side; a single image is bank.
    """
    if not 0 < fraction < 1:
        raise UserError(f"a holdout of {fraction} is impossible; use a fraction between 0 and 1")
    is_query = np.zeros(len(source), dtype=bool)
    for members in _members(_or_one_class(source.labels, len(source))):
        count = min(max(1, round(len(members) * fraction)), len(members) - 1)
        # The middle of each of `count` equal stretches, so that files of one day, one camera
        # or one film, which lie together, are on both sides.
        middles = (2 * np.arange(count) + 1) * len(members) // (2 * max(count, 1))
        is_query[members[middles]] = True
    return source.subset(np.flatnonzero(~is_query)), source.subset(np.flatnonzero(is_query))


def position_in_class(labels: Int64[np.ndarray, " M"]) -> Int64[np.ndarray, " M"]:
    """How many images of the same class come before each."""
    members = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    begins = np.cumsum(sizes) - sizes
    positions = np.empty(len(labels), dtype=np.int64)
    positions[members] = np.arange(len(labels)) - np.repeat(begins, sizes)
    return positions


def _or_one_class(
    labels: Sequence[int] | np.ndarray | None, images: int
) -> Int64[np.ndarray, " M"]:
    """The labels, or one class of all images where there are none."""
    return np.asarray(np.zeros(images) if labels is None else labels, dtype=np.int64)


def _members(labels: Int64[np.ndarray, " M"]) -> list[Int64[np.ndarray, " m"]]:
    """The indices of the images of each class that has any, in order."""
    by_class = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels))
    return [some for some in np.split(by_class, ends[:-1]) if len(some)]
