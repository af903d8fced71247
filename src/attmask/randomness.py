"""Random numbers by counter: the same (seed, step, image, view) gives the same draw anywhere.

A stateful generator would make results depend on the number of workers, ranks and micro-batches.
Here a draw is a hash of its counters (the finaliser of SplitMix64, Steele et al. 2014). It is
computed on the CPU, whatever trains: the tensors are small, not every device has 64-bit numbers,
and a copy is cheaper there than thirty small kernels.
"""

import zlib

import torch
from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX_1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX_2 = -7723592293110705685  # 0x94D049BB133111EB


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right and fill with zeros (`>>` on signed integers repeats the sign)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def uniform(purpose: str, *counters: int | Tensor) -> Tensor:
    """Float64 numbers in [0, 1), one for each element of the broadcast counters.

    `purpose` separates streams that share their counters (mask ratio, drop path, ...).
    """
    state = torch.tensor(zlib.crc32(purpose.encode()), dtype=torch.int64)
    for counter in counters:
        state = _mix((state ^ counter) * _MIX_1 + _GOLDEN)
    return _shift(state, 11).double() * 2.0**-53
