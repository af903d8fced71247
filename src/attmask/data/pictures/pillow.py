"""Open and decode pictures with Pillow.

Pillow's own `open` warns of large pictures and refuses very large ones by a number that is global
to the process; the limit on a picture's size is ours, so its readers are called without it.
"""

import io
import struct
from collections.abc import Callable, Iterator

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.ImageFile import ImageFile
from PIL.JpegImagePlugin import JpegImageFile

from attmask.data.pictures.channels import COLOUR, GREY, Samples
from attmask.data.pictures.depth import UnfitError
from attmask.data.pictures.endings import INSTALL_HEIF, can_read_heif
from attmask.data.pictures.heif import HEIF, looks_like_heif, register_heif
from attmask.data.pictures.silence import silent_library

FORMATS = ("PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", HEIF)
JPEG_START = b"\xff\xd8\xff"
JPEG_END = b"\xff\xd9"
_MOST_MISSING = 0.1  # of the rows, in a picture that is used all the same

# What each mode is turned into before its samples are taken; modes not named here stay.
_AS_SAMPLES = {
    "1": "L",
    "CMYK": "RGB",
    "YCbCr": "RGB",
    "LAB": "RGB",
    "HSV": "RGB",
    "RGBX": "RGB",
    "RGBa": "RGBA",
    "La": "LA",
    "PA": "RGBA",
}
_FOUR = ("CMYK", "RGBX")
_WITH_ALPHA = ("LA", "RGBA")
_TRUNCATED = "truncated"


def open_with_pillow(data: bytes) -> ImageFile:
    """Read the header of a picture; nothing is decoded."""
    damaged = False
    for reader in _readers(data):
        try:
            return reader(io.BytesIO(data), "")
        except (SyntaxError, IndexError, TypeError, struct.error):
            damaged = True  # as Pillow does: another format may begin with the same bytes
    if looks_like_heif(data) and not can_read_heif():
        raise UnfitError(f"it is a HEIC picture; to read it: {INSTALL_HEIF}")
    raise SyntaxError if damaged else UnidentifiedImageError


def _readers(data: bytes) -> Iterator[Callable[[io.BytesIO, str], ImageFile]]:
    """The readers that know the first bytes of a file."""
    if data.startswith(JPEG_START):
        # Of several pictures in one file the first, without a look for the others.
        yield JpegImageFile
        return
    Image.preinit()
    if looks_like_heif(data):
        register_heif()
    for name in FORMATS:
        if name not in Image.OPEN:
            Image.init()
        reader, accepts = Image.OPEN.get(name, (None, None))
        if reader is not None and accepts is not None and accepts(data[:16]) is True:
            yield reader


def samples_of_jpeg(data: bytes, channels: int, shrink: int) -> Samples:
    """Decode a JPEG, reduced by 1, 2, 4 or 8 on the way; a file that ends too early is used
    where little is missing."""
    try:
        return samples_of(_draft(data, channels, shrink), channels)
    except OSError as fault:
        if _TRUNCATED not in str(fault):
            raise
    # libjpeg fills what is missing with one flat colour when the end comes at a wrong place.
    samples = samples_of(_draft(data + JPEG_END, channels, shrink), channels)
    _refuse_if_much_is_missing(samples)
    return samples


def _draft(data: bytes, channels: int, shrink: int) -> ImageFile:
    image = JpegImageFile(io.BytesIO(data))
    # The grey of a JPEG is stored in it: no need to mix it from colours again.
    mode = "L" if channels == GREY and image.mode == "RGB" else image.mode
    width, height = image.size
    image.draft(mode, (max(1, width // shrink), max(1, height // shrink)))
    return image


def samples_of(image: Image.Image, channels: int) -> Samples:
    """Decode the first frame of a picture; a PNG that ends too early is used where little is
    missing."""
    cut_short = False
    try:
        with silent_library():
            image.load()
    except OSError as fault:
        if not (isinstance(image, ImageFile) and image.format == "PNG"):
            raise
        if _TRUNCATED not in str(fault):
            raise
        cut_short = True
        image.tile = []  # nothing left to decode: the rows that are there stay
    samples = _as_samples(image, channels)
    if cut_short:
        _refuse_if_much_is_missing(samples)
    return samples


def _as_samples(image: Image.Image, channels: int) -> Samples:
    if image.mode in _FOUR and channels not in (GREY, COLOUR):
        mode = image.mode  # as they are, for those who ask for as many channels
    elif image.mode in ("P", "L", "RGB") and "transparency" in image.info:
        mode = "RGBA"
    elif image.mode == "P":
        mode = "RGB"
    else:
        mode = _AS_SAMPLES.get(image.mode, image.mode)
    values = np.asarray(image if image.mode == mode else image.convert(mode))
    if values.dtype.kind == "u" and values.dtype.itemsize == 2:
        values = values.astype(np.uint16)  # I;16B: the byte order of this machine
    if image.format == "PPM" and mode == "I":
        values = values.astype(np.uint16)  # Pillow stretches it to 16 bits, whatever its depth
    return Samples(values.reshape(image.height, image.width, -1), alpha=mode in _WITH_ALPHA)


def _refuse_if_much_is_missing(samples: Samples) -> None:
    """Count the rows at the end that have the colour of the last pixel only."""
    values = samples.values
    flat = (values == values[-1, -1]).all(axis=(1, 2))
    rows = len(flat)
    missing = rows if flat.all() else int(flat[::-1].argmin())
    if missing > _MOST_MISSING * rows:
        raise UnfitError(f"{100 * missing / rows:.0f} per cent of the picture is missing")
