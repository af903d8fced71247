"""Which pictures are the same, and which look the same: hashes become groups.

Two hashes of 64 bits that differ in at most 4 places agree wholly in at least one of 5 bands, so
only pictures that share a band are compared, never all with all.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
from jaxtyping import Int64, UInt8, UInt64

from attmask.audit.fingerprint import BITS

NEAR = 4
"""Bits in which the hashes of two pictures that look the same may differ."""

_ONES = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint8)


def groups_of_equals(keys: Sequence[Hashable]) -> list[list[int]]:
    """The indices that share a key, where at least two do, in order."""
    members: dict[Hashable, list[int]] = {}
    for index, key in enumerate(keys):
        members.setdefault(key, []).append(index)
    return [group for group in members.values() if len(group) > 1]


def groups_of_near(hashes: Sequence[int | None], distance: int = NEAR) -> list[list[int]]:
    """The indices linked by hashes at most `distance` bits apart, link by link; None is alone."""
    known = [index for index, value in enumerate(hashes) if value is not None]
    values = np.array([value for value in hashes if value is not None], dtype=np.uint64)
    unique, which = np.unique(values, return_inverse=True)
    labels = _join(len(unique), near_pairs(unique, distance).tolist())
    members: dict[int, list[int]] = {}
    for index, place in zip(known, which.tolist(), strict=True):
        members.setdefault(labels[place], []).append(index)
    return sorted(group for group in members.values() if len(group) > 1)


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
    """The bits dealt out like cards, so that each band has high and low frequencies."""
    for band in range(count):
        yield np.uint64(sum(1 << bit for bit in range(band, BITS, count)))


def _neighbours(
    keys: UInt64[np.ndarray, " n"],
) -> Iterator[tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]]:
    """The places of every two equal keys in a sorted row, those next to each other first."""
    first = np.arange(len(keys) - 1)
    for gap in range(1, len(keys)):
        first = first[first + gap < len(keys)]
        first = first[keys[first] == keys[first + gap]]
        if not len(first):
            return
        yield first, first + gap


def _join(count: int, pairs: Iterable[Sequence[int]]) -> list[int]:
    """A label for each of `count` things, the same for those that are linked (union-find)."""
    parent = list(range(count))

    def root(thing: int) -> int:
        while parent[thing] != thing:
            parent[thing] = parent[parent[thing]]
            thing = parent[thing]
        return thing

    for one, other in pairs:
        parent[root(one)] = root(other)
    return [root(thing) for thing in range(count)]
