"""Pictures that Pillow cannot read, or not in their full depth: 16 bits and more in several
channels, and TIFFs of any number of channels."""

import io
from dataclasses import dataclass

import cv2
import numpy as np
from PIL.ImageFile import ImageFile
from PIL.TiffImagePlugin import ImageFileDirectory_v2, TiffImageFile

from attmask.data.pictures.channels import Samples
from attmask.data.pictures.depth import UnfitError
from attmask.data.pictures.orientation import UPRIGHT, turn_upright, upright_size
from attmask.data.pictures.silence import silent_library

_PNG_START = b"\x89PNG\r\n\x1a\n"
_TIFF_STARTS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")
_PNG_DEPTH, _PNG_COLOURS = 24, 25  # where these bytes lie
_PNG_GREY = 0
_CHUNK_BYTES = 12  # length, kind and checksum around the content
_WIDTH, _HEIGHT, _BITS, _ORIENTATION, _CHANNELS = 256, 257, 258, 274, 277
_PLANES, _EXTRA = 284, 338
_APART = 2  # each channel in a plane of its own
_ALPHA_KINDS = (1, 2)  # of an extra channel: associated and unassociated transparency


@dataclass(frozen=True)
class Header:
    """The header of a picture of high bit depth; the size of a TIFF is upright."""

    size_wh: tuple[int, int]
    channels: int
    alpha: bool
    apart: bool = False


def high_bit_depth_header(data: bytes, image: ImageFile | None) -> Header | None:
    """The header of a picture that Pillow could not open (None) or would open with less depth or
    fewer channels; None if Pillow reads it fully."""
    if data.startswith(_PNG_START) and image is not None:
        return _png_header(data, image)
    if data.startswith(_TIFF_STARTS):
        return _tiff_header(data, image)
    return None


def _png_header(data: bytes, image: ImageFile) -> Header | None:
    if data[_PNG_DEPTH] != 16 or data[_PNG_COLOURS] == _PNG_GREY:
        return None
    if not _chunks_fit(data):
        raise OSError("truncated PNG")
    alpha = image.mode in ("LA", "RGBA") or "transparency" in image.info
    return Header(image.size, 4 if alpha else 3, alpha)


def _chunks_fit(data: bytes) -> bool:
    """Whether each chunk of a PNG has its stated length, for which OpenCV would allocate memory."""
    place = len(_PNG_START)
    kind = b""
    while kind != b"IEND" and place + _CHUNK_BYTES <= len(data):
        kind = data[place + 4 : place + 8]
        place += _CHUNK_BYTES + int.from_bytes(data[place : place + 4], "big")
    return kind == b"IEND" and place <= len(data)


def _tiff_header(data: bytes, image: ImageFile | None) -> Header | None:
    tags = image.tag_v2 if isinstance(image, TiffImageFile) else _tags(data)
    channels = int(tags.get(_CHANNELS, 1))
    bits = np.atleast_1d(tags.get(_BITS, 1))
    if image is not None:
        # Of several channels Pillow keeps but 8 bits each, of one it keeps all; some it drops.
        whole = channels == 1 or bits.max() <= 8
        if whole and len(image.getbands()) >= channels:
            return None
    extra = np.atleast_1d(tags.get(_EXTRA, ()))
    alpha = len(extra) == 1 and channels in (2, 4) and extra[0] in _ALPHA_KINDS
    size = int(tags[_WIDTH]), int(tags[_HEIGHT])
    turned = upright_size(size, int(tags.get(_ORIENTATION, UPRIGHT)))
    return Header(turned, channels, alpha, apart=tags.get(_PLANES) == _APART)


def _tags(data: bytes) -> ImageFileDirectory_v2:
    """The tags of the first page, if Pillow cannot open the file."""
    large = data[2:4] in (b"+\x00", b"\x00+")
    tags = ImageFileDirectory_v2(data[: 16 if large else 8])
    file = io.BytesIO(data)
    file.seek(tags.next)
    tags.load(file)
    return tags


def high_bit_depth_samples(data: bytes, header: Header) -> Samples:
    """All values of all channels, as they are stored, in the order red, green, blue, others."""
    known = header.channels in (1, 3, 4) and not header.apart  # apart: read, but wrongly
    values = _with_opencv(data) if known else None
    if values is None or values.shape != (header.size_wh[1], header.size_wh[0], header.channels):
        values = _with_tifffile(data, header)
    return Samples(values, header.alpha)


def _with_opencv(data: bytes) -> np.ndarray | None:
    """OpenCV turns TIFFs upright, and PNGs not."""
    with silent_library():
        values = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    if values is None:
        return None
    values = values.reshape(*values.shape[:2], -1)
    order = [2, 1, 0, 3][: values.shape[2]] if values.shape[2] > 2 else [0]
    return np.asarray(values[:, :, order])


def _with_tifffile(data: bytes, header: Header) -> np.ndarray:
    if not data.startswith(_TIFF_STARTS):
        raise SyntaxError
    try:
        import tifffile
    except ImportError as missing:
        raise UnfitError(
            f"a TIFF of {header.channels} channels needs tifffile; pip install 'attmask[tiff]'"
        ) from missing
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages.first
        orientation = page.tags.get(_ORIENTATION)
        try:
            values = page.asarray()
        except ValueError as fault:
            if "imagecodecs" not in str(fault):
                raise
            raise UnfitError("its compression needs imagecodecs; pip install it") from fault
    if header.apart:
        values = np.moveaxis(values, 0, -1)
    values = values.reshape(*values.shape[:2], header.channels)
    return turn_upright(values, UPRIGHT if orientation is None else int(orientation.value))
