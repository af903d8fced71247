"""Rotate a picture upright by its EXIF orientation."""

import struct

import cv2
import numpy as np
from jaxtyping import Shaped

UPRIGHT = 1
_TAG = 0x0112
_SHORT = 3
_ENTRY_BYTES = 12
_OPENCV_CHANNELS = 4  # as many it turns, several times as fast as NumPy

# The way back to upright: whether width and height change places, then the axes to flip.
_STEPS: dict[int, tuple[bool, tuple[int, ...]]] = {
    2: (False, (1,)),
    3: (False, (0, 1)),
    4: (False, (0,)),
    5: (True, ()),
    6: (True, (1,)),
    7: (True, (0, 1)),
    8: (True, (0,)),
}


def read_orientation(exif: bytes) -> int:
    """The orientation, 1 to 8, in a block of EXIF; upright where the block says nothing or is
    damaged. Pillow reads all of a block for this one number and warns of damage in the rest."""
    tiff = exif[6:] if exif.startswith(b"Exif\x00\x00") else exif
    order = {b"II": "<", b"MM": ">"}.get(tiff[:2])
    if order is None:
        return UPRIGHT
    try:
        (start,) = struct.unpack_from(order + "I", tiff, 4)
        (entries,) = struct.unpack_from(order + "H", tiff, start)
        for entry in range(entries):
            place = start + 2 + entry * _ENTRY_BYTES
            tag, kind, _, value = struct.unpack_from(order + "HHIH", tiff, place)
            if tag == _TAG:
                return value if kind == _SHORT and 1 <= value <= 8 else UPRIGHT
    except struct.error:
        return UPRIGHT
    return UPRIGHT


def upright_size(size_wh: tuple[int, int], orientation: int) -> tuple[int, int]:
    """Width and height once the picture is turned."""
    transposed, _ = _STEPS.get(orientation, (False, ()))
    return (size_wh[1], size_wh[0]) if transposed else size_wh


def turn_upright(
    pixels: Shaped[np.ndarray, "h w C"], orientation: int
) -> Shaped[np.ndarray, "H W C"]:
    """Rotate or flip the pixels upright; an upright picture is returned as it is."""
    if orientation not in _STEPS:
        return pixels
    transposed, flips = _STEPS[orientation]
    channels = pixels.shape[2]
    if channels > _OPENCV_CHANNELS:
        turned = pixels.transpose(1, 0, 2) if transposed else pixels
        return np.ascontiguousarray(np.flip(turned, flips))
    turned = cv2.transpose(pixels) if transposed else pixels
    if flips:
        turned = cv2.flip(turned, {(0,): 0, (1,): 1, (0, 1): -1}[flips])
    return np.asarray(turned).reshape(*turned.shape[:2], channels)  # OpenCV drops an axis of one
