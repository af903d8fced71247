"""Identify a picture by a hash of its bytes, by a perceptual hash, or by a thumbnail."""

import hashlib

import cv2
import numpy as np
from jaxtyping import UInt8

from attmask.data.source import Raw

BITS = 64
SIDE = 32
"""Width and height of a thumbnail."""

_ROUNDING = 0.5  # coefficients nearer to the median than this are decided by rounding
_DECIDED = 48  # bits that must be decided by the picture itself

# The 64 lowest frequencies, from low to high, without the mean.
_LOWEST = np.array(
    sorted(
        ((row, column) for row in range(SIDE) for column in range(SIDE) if row or column),
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


def thumbnail(grey: UInt8[np.ndarray, "H W"]) -> UInt8[np.ndarray, "32 32"]:
    """The picture averaged to a small square, whatever its shape."""
    small = cv2.resize(grey, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8)


def perceptual_hashes(small: UInt8[np.ndarray, "32 32"]) -> tuple[int, int] | None:
    """64 bits that change little when a picture is scaled, saved again or made brighter, and those
    of the flipped picture.

    Each bit says whether one low frequency (a cosine) is above the median of all. A picture so
    flat that rounding would decide the bits has none. A flip changes the sign of the odd horizontal
    frequencies.
    """
    waves = cv2.dct(small.astype(np.float32))[_LOWEST[:, 0], _LOWEST[:, 1]]
    both = np.stack([waves, np.where(_LOWEST[:, 1] % 2, -waves, waves)])
    above = both - np.median(both, axis=1, keepdims=True)
    if np.count_nonzero(abs(above) > _ROUNDING, axis=1).min() < _DECIDED:
        return None
    upright, flipped = (int(_PLACES[bits].sum()) for bits in above > 0)
    return upright, flipped
