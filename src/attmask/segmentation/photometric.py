"""Photometric distortion of segmentation, on 8-bit values as in mmsegmentation.

It is not torchvision's RandomPhotometricDistort, which also permutes the colours, nor the colour
jitter of pre-training: brightness is added, and contrast is a factor of the values themselves.
OpenCV and tables of 256 values do it in a fraction of the time.
"""

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

BRIGHTNESS = 32.0  # the largest change, of 255
CONTRAST = (0.5, 1.5)
SATURATION = (0.5, 1.5)
HUE = 18  # the largest turn, in OpenCV's 180 steps of a circle
_HUES = 180

_VALUES = np.arange(256, dtype=np.float32)
_SAME = np.arange(256, dtype=np.uint8)

Table = UInt8[np.ndarray, "256"]


def distort(
    pixels: UInt8[np.ndarray, "H W 3"], draw: np.random.Generator, probability: float
) -> UInt8[np.ndarray, "H W 3"]:
    """Change brightness, contrast, saturation and hue, each with this probability.

    Contrast changes before or after saturation and hue, with equal chances.
    """
    does_brightness, does_contrast, does_saturation, does_hue = draw.random(4) < probability
    contrast_first = draw.random() < 0.5
    before = _SAME
    if does_brightness:
        before = _cut(_VALUES + np.float32(draw.uniform(-BRIGHTNESS, BRIGHTNESS)))
    contrast = _SAME
    if does_contrast:
        contrast = _cut(_VALUES * np.float32(draw.uniform(*CONTRAST)))
    if does_contrast and contrast_first:
        before, contrast = contrast[before], _SAME
    pixels = _through(pixels, before)
    if does_saturation or does_hue:
        saturation = draw.uniform(*SATURATION) if does_saturation else 1.0
        turn = int(draw.integers(-HUE, HUE)) if does_hue else 0
        pixels = recoloured(pixels, float(saturation), turn)
    return _through(pixels, contrast)


def recoloured(
    pixels: UInt8[np.ndarray, "H W 3"], saturation: float, turn: int
) -> UInt8[np.ndarray, "H W 3"]:
    """The saturation times a factor, and hues turned by some of 180 steps."""
    hues = (np.arange(256) + turn) % _HUES
    table = np.stack([hues.astype(np.uint8), _cut(_VALUES * np.float32(saturation)), _SAME], axis=1)
    parts = cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV)
    return cv2.cvtColor(cv2.LUT(parts, table[None]), cv2.COLOR_HSV2RGB)


def _through(pixels: UInt8[np.ndarray, "H W 3"], table: Table) -> UInt8[np.ndarray, "H W 3"]:
    return pixels if table is _SAME else cv2.LUT(pixels, table)


def _cut(values: Float32[np.ndarray, "256"]) -> Table:
    """As bytes, fractions cut off."""
    return np.asarray(np.clip(values, 0, 255), dtype=np.uint8)
