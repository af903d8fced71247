"""New colours for the pixels of one view: jitter, grey, blur and solarisation, on 8-bit values.

The steps are those of torchvision's transforms on Pillow images, which cut off fractions rather
than round them. OpenCV and tables of 256 values do the same in a fraction of the time.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

Pixels = UInt8[np.ndarray, "H W C"]

SOLARISE_THRESHOLD = 128
COLOURLESS = (0, 1)  # brightness and contrast: the steps that any number of channels can take

_VALUES = np.arange(256, dtype=np.float32)
_SOLARISED = np.where(np.arange(256) < SOLARISE_THRESHOLD, np.arange(256), 255 - np.arange(256))
_AS_THEY_ARE = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
_MEANS = 3
_CUT_OFF = -0.499  # OpenCV rounds to the nearest; half a level less is to cut off, as Pillow does


@dataclass(frozen=True)
class Jitter:
    """Colour changes: factors of brightness, contrast, saturation and hue, and their order."""

    order: tuple[int, ...]
    factors: tuple[float, float, float, float]


@dataclass(frozen=True)
class Look:
    """Every random choice about the colours of one view."""

    jitter: Jitter | None
    grey: bool
    blur_sigma: float | None
    solarise: bool


def recolour(pixels: Pixels, look: Look) -> Pixels:
    """Carry the choices out; what needs three colours is left out where there are not three."""
    coloured = pixels.shape[2] == 3
    if look.jitter is not None:
        for step in look.jitter.order:
            if coloured or step in COLOURLESS:
                pixels = _STEPS[step](pixels, look.jitter.factors[step])
    if look.grey and coloured:
        pixels = _three(_grey(pixels))
    if look.blur_sigma is not None:
        pixels = blur(pixels, look.blur_sigma)
    if look.solarise:
        pixels = _through(pixels, _SOLARISED)
    return pixels


def brighten(pixels: Pixels, factor: float) -> Pixels:
    """Every value times the factor."""
    return _through(pixels, _VALUES * np.float32(factor))


def change_contrast(pixels: Pixels, factor: float) -> Pixels:
    """Every value's distance from the mean brightness times the factor."""
    brightness = _grey(pixels) if pixels.shape[2] == 3 else pixels
    middle = np.float32(int(cv2.mean(brightness.reshape(1, -1))[0] + 0.5))
    return _through(pixels, middle + np.float32(factor) * (_VALUES - middle))


def saturate(pixels: Pixels, factor: float) -> Pixels:
    """Every value's distance from its pixel's brightness times the factor."""
    return cv2.addWeighted(pixels, factor, _three(_grey(pixels)), 1 - factor, _CUT_OFF)


def turn_hue(pixels: Pixels, turn: float) -> Pixels:
    """Hues turned by a share of the circle, in steps of 1/255 as torchvision does."""
    parts = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV_FULL)
    table = _AS_THEY_ARE.copy()
    table[0, :, 0] = _turned_hues(turn)
    return cv2.cvtColor(cv2.LUT(parts, table), cv2.COLOR_HSV2RGB_FULL)


def _turned_hues(turn: float) -> UInt8[np.ndarray, "256"]:
    """What each of OpenCV's hues becomes: it reads 256 of them to a circle, but writes 255."""
    share = (_VALUES / 256 + int(turn * 255) / 255) % 1
    return np.round(share * 255).astype(np.uint8)


def blur(pixels: Pixels, sigma: float) -> Pixels:
    """Pillow's blur of this std in pixels; the border is replicated."""
    taps = blur_taps(sigma)
    blurred = cv2.sepFilter2D(pixels, -1, taps, taps, borderType=cv2.BORDER_REPLICATE)
    return blurred.reshape(pixels.shape)


def blur_taps(sigma: float) -> Float32[np.ndarray, "taps"]:
    """The weights of Pillow's Gaussian: three running means, whose ends count by a fraction.

    Below half a pixel these differ much from a Gaussian taken at whole pixels.
    """
    variance = sigma**2 / _MEANS
    whole = int((math.sqrt(12 * variance + 1) - 1) / 2)
    end = (2 * whole + 1) * (whole * (whole + 1) - 3 * variance)
    end /= 6 * (variance - (whole + 1) ** 2)
    mean = np.array([end, *[1.0] * (2 * whole + 1), end]) / (2 * whole + 1 + 2 * end)
    taps = mean
    for _ in range(_MEANS - 1):
        taps = np.convolve(taps, mean)
    return taps.astype(np.float32)


_STEPS: tuple[Callable[[Pixels, float], Pixels], ...] = (
    brighten,
    change_contrast,
    saturate,
    turn_hue,
)


def _grey(pixels: Pixels) -> UInt8[np.ndarray, "H W"]:
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)


def _three(grey: UInt8[np.ndarray, "H W"]) -> Pixels:
    return cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB)


def _through(pixels: Pixels, table: np.ndarray) -> Pixels:
    """Each value replaced by its entry in a table, fractions cut off."""
    bytes_ = np.clip(table, 0, 255).astype(np.uint8)
    return cv2.LUT(pixels, bytes_).reshape(pixels.shape)
