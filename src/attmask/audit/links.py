"""Which pictures are the same, and which look the same: hashes become links, links groups.

Two hashes of 64 bits that differ in at most 4 places agree wholly in at least one of 5 bands, so
only pictures that share a band are compared, never all with all.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64, UInt8, UInt64

from attmask.audit.fingerprint import BITS

NEAR = 4
"""Bits in which the hashes of two pictures that look the same may differ."""

_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


class Link(NamedTuple):
    """Two pictures that look alike, and whether one is flipped or cropped."""

    one: int
    other: int
    flipped: bool = False
    cropped: bool = False


class Groups:
    """Pictures joined by links; where several links say the same, the first is kept."""

    def __init__(self, count: int) -> None:
        self._parent = list(range(count))
        self._links: dict[int, list[Link]] = {}

    def root(self, picture: int) -> int:
        """The representative of the picture's group."""
        parent = self._parent
        while parent[picture] != picture:
            parent[picture] = parent[parent[picture]]
            picture = parent[picture]
        return picture

    def join(self, links: Iterable[Link]) -> None:
        """Make one group of the groups of every two linked pictures."""
        for link in links:
            one, other = map(self.root, link[:2])
            if one != other:
                self._parent[other] = one
                self._links.setdefault(link.one, []).append(link)
                self._links.setdefault(link.other, []).append(link)

    def labels(self) -> Int64[np.ndarray, " n"]:
        """The root of every picture."""
        labels = np.array(self._parent, dtype=np.int64)
        while (labels[labels] != labels).any():
            labels = labels[labels]
        return labels

    def members(self) -> list[list[int]]:
        """The groups of two or more pictures, each in order."""
        return groups_of_equals(self.labels().tolist())

    def seen_from(self, start: int) -> dict[int, Link]:
        """For each other picture of the group, how it differs from this one, link by link."""
        seen = {start: Link(start, start)}
        waiting = [start]
        for picture in waiting:
            here = seen[picture]
            for link in self._links.get(picture, ()):
                there = link.other if link.one == picture else link.one
                if there not in seen:
                    flipped = here.flipped != link.flipped
                    seen[there] = Link(start, there, flipped, here.cropped or link.cropped)
                    waiting.append(there)
        del seen[start]
        return seen


def groups_of_equals(keys: Sequence[Hashable]) -> list[list[int]]:
    """The indices that share a key, where at least two do, in order."""
    members: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    return [group for group in members.values() if len(group) > 1]


def near_links(
    hashes: Sequence[int | None], flipped: Sequence[int | None], distance: int = NEAR
) -> Iterator[Link]:
    """Links between pictures whose hashes, upright or flipped, are at most `distance` bits apart.

    Of pictures with the same hash, each is linked with the first; links without a flip come
    first.
    """
    count = len(hashes)
    both = [*hashes, *flipped]
    known = np.array([place for place, value in enumerate(both) if value is not None], dtype=int)
    values = np.array([value for value in both if value is not None], dtype=np.uint64)
    unique, first, which = np.unique(values, return_index=True, return_inverse=True)
    pairs = np.concatenate(
        [
            np.stack([known[first][which], known], axis=1),
            known[first][near_pairs(unique, distance)],
        ]
    )
    turned = (pairs[:, 0] < count) != (pairs[:, 1] < count)
    pairs = pairs % max(count, 1)
    for mirror in (False, True):
        for one, other in pairs[(turned == mirror) & (pairs[:, 0] != pairs[:, 1])].tolist():
            yield Link(one, other, flipped=mirror)


def near_pairs(hashes: UInt64[np.ndarray, " n"], distance: int = NEAR) -> Int64[np.ndarray, "p 2"]:
    """Every pair of indices whose hashes differ in at most `distance` bits, each pair once."""
    found = [np.empty((0, 2), dtype=np.int64)]
    for band in _bands(distance + 1):
        order = np.argsort(hashes & band, kind="stable")
        for first, second in _neighbours(hashes[order] & band):
            one, other = order[first], order[second]
            near = differing_bits(hashes[one], hashes[other]) <= distance
            found.append(np.sort(np.stack([one[near], other[near]], axis=1), axis=1))
    return np.unique(np.concatenate(found), axis=0)


def differing_bits(
    one: UInt64[np.ndarray, " n"], other: UInt64[np.ndarray, " n"]
) -> UInt8[np.ndarray, " n"]:
    """The number of bits in which two hashes differ."""
    octets = (one ^ other)[:, None].view(np.uint8)
    return np.asarray(_ONES[octets].sum(axis=1, dtype=np.uint8))


def _bands(count: int) -> Iterator[np.uint64]:
    """Interleaved bits, so that each band has high and low frequencies."""
    for band in range(count):
        yield np.uint64(sum(1 << bit for bit in range(band, BITS, count)))


def _neighbours(
    keys: UInt64[np.ndarray, " n"],
) -> Iterator[tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]]:
    """The positions of every two equal keys in a sorted array, neighbours first."""
    first = np.arange(len(keys) - 1)
    for gap in range(1, len(keys)):
        first = first[first + gap < len(keys)]
        first = first[keys[first] == keys[first + gap]]
        if not len(first):
            return
        yield first, first + gap
