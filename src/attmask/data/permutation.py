"""A random permutation of any number of things that is computed entry by entry, without a table.

A keyed Feistel network permutes the numbers of an even number of bits: each round replaces one
half by its sum (exclusive or) with a hash of the other half, which can be undone, so no two
numbers become the same one (Luby and Rackoff 1988). What leaves the wanted range is put through it
again until it is inside, which stays a permutation (cycle walking, Black and Rogaway 2002).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from attmask.randomness import hashed

_ROUNDS = 8


@dataclass(frozen=True)
class Permutation:
    """A permutation of 0 to `count - 1`; another one for every purpose and counters."""

    purpose: str
    counters: tuple[int, ...]
    count: int

    def __len__(self) -> int:
        return self.count

    def __call__(self, places: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, " m"]:
        """The numbers at these places."""
        if len(places) and not 0 <= places.min() <= places.max() < self.count:
            raise IndexError(f"a place is not in a permutation of {self.count}")
        numbers = self._mixed(places.astype(np.uint64))
        while len(outside := np.flatnonzero(numbers >= np.uint64(self.count))):
            numbers[outside] = self._mixed(numbers[outside])
        return numbers.astype(np.int64)

    @property
    def _half_bits(self) -> int:
        """Bits of a half: together the fewest, of an even number, that hold all numbers."""
        return max(1, -(-(self.count - 1).bit_length() // 2))

    def _mixed(self, numbers: np.ndarray) -> np.ndarray:
        bits = np.uint64(self._half_bits)
        mask = (np.uint64(1) << bits) - np.uint64(1)
        left, right = numbers >> bits, numbers & mask
        for number in range(_ROUNDS):
            mixed = hashed(self.purpose, *self.counters, number, right.astype(np.int64))
            left, right = right, left ^ (mixed >> (np.uint64(64) - bits))
        return np.asarray((left << bits) | right)
