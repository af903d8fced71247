"""Two ways to know a picture again: by its bytes, and by what it looks like."""

import hashlib

import cv2
import numpy as np
from jaxtyping import UInt8

from attmask.data.source import Raw

BITS = 64

_SIDE = 32
_ROUNDING = 0.5  # coefficients nearer to the median than this are decided by rounding
_DECIDED = 48  # bits that must be decided by the picture itself

# The 64 lowest frequencies, from low to high, without the mean.
_LOWEST = np.array(
    sorted(
        ((row, column) for row in range(_SIDE) for column in range(_SIDE) if row or column),
        key=lambda place: (sum(place), place),
    )[:BITS]
)
_PLACES = (1 << np.arange(BITS, dtype=np.uint64)).astype(np.uint64)


def digest(raw: Raw) -> bytes:
    """16 bytes that are the same only for the same file or the same array."""
    if isinstance(raw, bytes):
        return hashlib.blake2b(raw, digest_size=16).digest()
    kind = f"{raw.dtype.str} {raw.shape} ".encode()
    return hashlib.blake2b(kind + raw.tobytes(), digest_size=16).digest()


def perceptual_hash(grey: UInt8[np.ndarray, "H W"]) -> int | None:
    """64 bits that change little when a picture is scaled, saved again or made brighter.

    Each bit says whether one low frequency (a cosine) is above the median of all. A picture so
    flat that rounding would decide the bits has none.
    """
    small = cv2.resize(grey, (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    waves = cv2.dct(small.astype(np.float32))[_LOWEST[:, 0], _LOWEST[:, 1]]
    above = waves - np.median(waves)
    if np.count_nonzero(abs(above) > _ROUNDING) < _DECIDED:
        return None
    return int(_PLACES[above > 0].sum())
