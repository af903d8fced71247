"""The format in which a picture is stored: name, mode, channels and bits."""

import io
import warnings
from dataclasses import dataclass

import numpy as np
from PIL import UnidentifiedImageError
from PIL.TiffImagePlugin import ImageFileDirectory_v2, TiffImageFile

from attmask.data.pictures.pillow import open_with_pillow
from attmask.data.source import Raw

# Pillow's modes of one channel, and the bits of it; all others are 8-bit colours.
_ONE_CHANNEL = {"1": 1, "L": 8, "LA": 8, "La": 8, "I": 32, "F": 32}
_PNG_DEPTH = 24  # the byte of the header that says so
_TIFF_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_DEPTH, _PHOTOMETRIC, _CHANNELS, _EXTRA = 258, 262, 277, 338
_PALETTE, _CMYK = 3, 5
_ALPHA_KINDS = (1, 2)


@dataclass(frozen=True)
class StoredFormat:
    """The format of a picture in its file, before any conversion."""

    format: str
    mode: str
    channels: int
    """Without transparency; a palette counts as colour."""
    bits: int


def stored_format(raw: Raw) -> StoredFormat:
    """Read the format from the header of a readable picture."""
    if isinstance(raw, np.ndarray):
        channels = raw.shape[2] if raw.ndim == 3 else 1
        return StoredFormat("array", str(raw.dtype), channels, 8 * raw.dtype.itemsize)
    try:
        image = open_with_pillow(raw)
    except (SyntaxError, UnidentifiedImageError):
        image = None
    if image is None or isinstance(image, TiffImageFile):
        return _tiff(raw, image)
    deep = image.mode.startswith("I;16")
    bits = 16 if deep else _ONE_CHANNEL.get(image.mode, 8)
    if image.format == "PNG":
        bits = raw[_PNG_DEPTH]  # Pillow keeps 8 of 16 bits of colours
    channels = 1 if deep or image.mode in _ONE_CHANNEL else 3
    return StoredFormat(image.format or "unknown", image.mode, channels, bits)


def _tiff(raw: bytes, image: TiffImageFile | None) -> StoredFormat:
    """Read the format from the tags of a TIFF, which Pillow may not support."""
    tags = _tags(raw) if image is None else image.tag_v2
    channels = int(tags.get(_CHANNELS, 1))
    extra = np.atleast_1d(tags.get(_EXTRA, ()))
    if len(extra) == 1 and channels in (2, 4) and extra[0] in _ALPHA_KINDS:
        channels -= 1
    if tags.get(_PHOTOMETRIC) in (_PALETTE, _CMYK):
        channels = 3
    mode = f"{channels} channels" if image is None else image.mode
    return StoredFormat("TIFF", mode, channels, int(np.max(tags.get(_DEPTH, 1))))


def _tags(raw: bytes) -> ImageFileDirectory_v2:
    assert raw.startswith(_TIFF_STARTS), "every other readable format is Pillow's"
    is_large = b"+" in raw[2:4]
    tags = ImageFileDirectory_v2(raw[: 16 if is_large else 8])
    file = io.BytesIO(raw)
    file.seek(tags.next)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tags.load(file)
    return tags
