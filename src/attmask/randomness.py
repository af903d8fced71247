"""Random numbers by counter: the same (seed, step, image, view) gives the same draw anywhere.

A stateful generator would make results depend on the number of workers, ranks and micro-batches.
Here a draw is a hash of its counters (the finaliser of SplitMix64, Steele et al. 2014). Draws are
NumPy arrays, because they belong to the host: what depends on them, such as how many patches are
hidden, is known there without waiting for a device.
"""

import zlib
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float64, UInt64

Counter: TypeAlias = int | np.integer[Any] | np.ndarray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * _MIX_1
    x = (x ^ (x >> np.uint64(27))) * _MIX_2
    return np.asarray(x ^ (x >> np.uint64(31)))


def uniform(purpose: str, *counters: Counter) -> Float64[np.ndarray, "..."]:
    """Float64 numbers in [0, 1), one for each element of the broadcast counters.

    `purpose` separates streams that share their counters (mask ratio, drop path, ...).
    """
    bits = hashed(purpose, *counters)
    return np.asarray((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def hashed(purpose: str, *counters: Counter) -> UInt64[np.ndarray, "..."]:
    """64 random bits for each element of the broadcast counters; `uniform` is made of these."""
    # At least one dimension: NumPy warns when a single number overflows, as all of these do.
    state = np.array([zlib.crc32(purpose.encode())], dtype=np.uint64)
    for counter in counters:
        number = np.asarray(counter).astype(np.int64).view(np.uint64)
        state = _mix((state ^ number) * _MIX_1 + _GOLDEN)
    return state.reshape(np.broadcast_shapes(*(np.shape(counter) for counter in counters)))
