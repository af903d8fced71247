"""Convert pixel values to 8 bits: integers by their bit depth, floats by their range."""

from functools import lru_cache

import numpy as np
from jaxtyping import Shaped, UInt8

_USUAL_BITS = (8, 10, 12, 14, 16)  # depths of cameras, microscopes and scanners


class UnfitError(ValueError):
    """A picture that is intact but cannot be used, with the reason."""


def to_8_bits(
    values: Shaped[np.ndarray, "H W C"], bits: int | None = None
) -> UInt8[np.ndarray, "H W C"]:
    """Bytes as they are; 16-bit values by `bits`, or else by the least usual depth that holds
    the brightest; floats in 0..1 times 255; anything else from its least to its greatest value."""
    if values.dtype == np.uint8:
        return values
    if values.dtype == np.bool_:
        return values.astype(np.uint8) * np.uint8(255)
    if values.dtype == np.uint16:
        return np.asarray(_table(bits or _least_bits(int(values.max())))[values])
    if values.dtype.kind not in "iuf":
        raise UnfitError(f"pixels of type {values.dtype} are not supported")
    return _by_range(values)


def _least_bits(brightest: int) -> int:
    return next(bits for bits in _USUAL_BITS if brightest < 1 << bits)


@lru_cache(maxsize=16)
def _table(bits: int) -> UInt8[np.ndarray, "65536"]:
    """The byte for each 16-bit value of which the lowest `bits` bits are used."""
    greatest = (1 << bits) - 1
    values = np.arange(1 << 16, dtype=np.int64).clip(max=greatest)
    return ((values * 255 + greatest // 2) // greatest).astype(np.uint8)


def _by_range(values: Shaped[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "H W C"]:
    least, greatest = float(values.min()), float(values.max())
    if not (np.isfinite(least) and np.isfinite(greatest)):
        raise UnfitError("some values are infinite or not a number")
    if values.dtype.kind == "f" and least >= 0 and greatest <= 1:
        least, greatest = 0.0, 1.0
    if least == greatest:
        return np.zeros(values.shape, np.uint8)
    # In double precision. The distance of two numbers may be infinite, so it is halved; but half
    # of the least there are is nothing.
    half = 0.5 if np.isinf(greatest - least) else 1.0
    share = (values.astype(np.float64) * half - least * half) / (greatest * half - least * half)
    return np.rint(share * 255).astype(np.uint8)
