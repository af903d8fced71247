"""A picture that is opened by its header and decoded when its pixels are requested."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image
from PIL.ImageFile import ImageFile

from attmask.data.pictures.channels import COLOUR, GREY, Samples, in_channels
from attmask.data.pictures.depth import UnfitError
from attmask.data.pictures.high_bit_depth import high_bit_depth_header, high_bit_depth_samples
from attmask.data.pictures.orientation import UPRIGHT, read_orientation, turn_upright, upright_size
from attmask.data.pictures.pillow import (
    JPEG_END,
    JPEG_START,
    open_with_pillow,
    samples_of,
    samples_of_jpeg,
)
from attmask.data.pictures.silence import silent_library, silent_reader

JPEG_SHRINKS = (1, 2, 4, 8)

_FEW_CHANNELS = 4

# The reductions of OpenCV's flags without their colours, which are BGR in its own names.
_REDUCED = {
    1: 0,
    2: cv2.IMREAD_REDUCED_GRAYSCALE_2,
    4: cv2.IMREAD_REDUCED_GRAYSCALE_4,
    8: cv2.IMREAD_REDUCED_GRAYSCALE_8,
}


@dataclass(frozen=True)
class Target:
    """The requested channels and bit depth, and the largest size of a picture."""

    channels: int = 3
    bits: int | None = None
    max_megapixels: float = 180.0


@dataclass(frozen=True)
class Picture:
    """A picture whose pixels are not decoded yet.

    `size_wh` is upright and full; `shrinks` are the factors it can be reduced by while decoding.
    """

    size_wh: tuple[int, int]
    shrinks: tuple[int, ...]
    read: Callable[[int], UInt8[np.ndarray, "H W C"]]

    def pixels(self, shrink: int = 1) -> UInt8[np.ndarray, "H W C"]:
        """Decode: contiguous, upright, never smaller than the size over `shrink`, rounded down."""
        if shrink not in self.shrinks:
            raise ValueError(f"this picture shrinks by {self.shrinks}, not by {shrink}")
        return self.read(shrink)


def picture_of(raw: bytes | np.ndarray | Image.Image, target: Target) -> Picture:
    """Open a picture: a file's bytes, an array of pixels or an image of Pillow; any fault may be
    raised."""
    if isinstance(raw, np.ndarray):
        return _of_array(raw, target)
    if isinstance(raw, Image.Image):
        return _of_image(raw, target)
    with silent_reader():
        return _of_file(raw, target)


def _of_array(array: np.ndarray, target: Target) -> Picture:
    if array.ndim not in (2, 3):
        raise UnfitError(f"an array of shape {array.shape} is not a picture; wanted H W or H W C")
    values = array if array.ndim == 3 else array[:, :, None]
    size = values.shape[1], values.shape[0]
    return _picture(size, UPRIGHT, target, lambda _: Samples(values))


def _of_image(image: Image.Image, target: Target) -> Picture:
    _refuse_bomb(image.size, target)
    image.load()  # a PNG may say its orientation behind its pixels
    turned = image.format == "TIFF"  # by its decoder
    orientation = UPRIGHT if turned else read_orientation(image.info.get("exif", b""))
    return _picture(image.size, orientation, target, lambda _: samples_of(image, target.channels))


def _of_file(data: bytes, target: Target) -> Picture:
    if not data:
        raise UnfitError("the file is empty")
    if data.startswith(JPEG_START):
        return _of_jpeg(data, target)
    try:
        image = open_with_pillow(data)
    except SyntaxError:  # a TIFF of a kind that Pillow does not know
        image = None
    orientation = UPRIGHT if image is None else _orientation(image, data)
    header = high_bit_depth_header(data, image)
    if header is not None:
        _refuse_bomb(header.size_wh, target, header.channels)
        return _picture(
            header.size_wh, orientation, target, lambda _: high_bit_depth_samples(data, header)
        )
    if image is None:
        raise SyntaxError
    return _picture(image.size, orientation, target, lambda _: samples_of(image, target.channels))


def _orientation(image: ImageFile, data: bytes) -> int:
    if image.format == "TIFF":
        return UPRIGHT  # its decoders turn it
    exif = image.info.get("exif", b"")
    if image.format == "PNG" and not exif:
        # It may lie behind the pixels, where a reader of headers does not come.
        exif = data[data.rfind(b"eXIf") + 4 :] if b"eXIf" in data else b""
    return read_orientation(exif)


def _of_jpeg(data: bytes, target: Target) -> Picture:
    image = open_with_pillow(data)
    orientation = read_orientation(image.info.get("exif", b""))
    # Other colours, and a file that ends too early, are left to Pillow, which knows them better.
    plain = image.mode in ("L", "RGB") and "adobe" not in image.info and data.endswith(JPEG_END)
    if plain and target.channels in (GREY, COLOUR):
        read = partial(_plain_jpeg, data, target.channels)
    else:
        read = partial(samples_of_jpeg, data, target.channels)
    return _picture(image.size, orientation, target, read, JPEG_SHRINKS)


def _plain_jpeg(data: bytes, channels: int, shrink: int) -> Samples:
    """With OpenCV: the same libjpeg and the same pixels as Pillow's, in three quarters of the
    time."""
    colours = cv2.IMREAD_COLOR_RGB if channels == COLOUR else cv2.IMREAD_GRAYSCALE
    flags = _REDUCED[shrink] | colours | cv2.IMREAD_IGNORE_ORIENTATION
    with silent_library():
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    if pixels is None:
        return samples_of_jpeg(data, channels, shrink)
    return Samples(pixels.reshape(*pixels.shape[:2], channels))


def _picture(
    stored_wh: tuple[int, int],
    orientation: int,
    target: Target,
    samples: Callable[[int], Samples],
    shrinks: tuple[int, ...] = (1,),
) -> Picture:
    """Return the opened picture, or raise an error if it is too large."""
    if 0 in stored_wh:
        raise UnfitError("it has no pixels")
    _refuse_bomb(stored_wh, target)
    read = partial(_read, samples, orientation, target)
    return Picture(upright_size(stored_wh, orientation), shrinks, read)


def _refuse_bomb(stored_wh: tuple[int, int], target: Target, channels: int = COLOUR) -> None:
    """Raise an error if a picture is too large to be decoded; channels count as pixels."""
    if math.prod(stored_wh) * max(1.0, channels / _FEW_CHANNELS) > target.max_megapixels * 1e6:
        many = f" of {channels} channels" if channels > _FEW_CHANNELS else ""
        raise UnfitError(
            f"{stored_wh[0]} x {stored_wh[1]} pixels{many} are more than "
            f"data.max_megapixels={target.max_megapixels:g}"
        )


def _read(
    samples: Callable[[int], Samples], orientation: int, target: Target, shrink: int
) -> UInt8[np.ndarray, "H W C"]:
    with silent_reader():
        found = samples(shrink)
    pixels = in_channels(found, target.channels, target.bits)
    return turn_upright(pixels, orientation)
