"""Pixels and labels in another size, as dense prediction is trained and measured on them."""

import cv2
import numpy as np
from jaxtyping import Int16, UInt8

_FEW_CHANNELS = 4  # as many OpenCV resizes at once, in every version


def fitted_hw(size_hw: tuple[int, int], long_short: tuple[int, int]) -> tuple[int, int]:
    """The largest size of the same shape whose longer and shorter sides fit these, as in mmcv."""
    scale = min(max(long_short) / max(size_hw), min(long_short) / min(size_hw))
    height, width = (max(1, int(side * scale + 0.5)) for side in size_hw)
    return height, width


def resized_pixels(
    pixels: UInt8[np.ndarray, "H W C"], size_hw: tuple[int, int]
) -> UInt8[np.ndarray, "h w C"]:
    """An image in another size: bilinear without antialiasing, as in mmsegmentation."""
    if pixels.shape[:2] == size_hw:
        return pixels
    parts = [
        cv2.resize(pixels[:, :, first : first + _FEW_CHANNELS], size_hw[::-1]).reshape(*size_hw, -1)
        for first in range(0, pixels.shape[2], _FEW_CHANNELS)
    ]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)


def resized_labels(
    labels: Int16[np.ndarray, "H W"], size_hw: tuple[int, int]
) -> Int16[np.ndarray, "h w"]:
    """Labels in another size: each of the nearest pixel, from pixel centre to pixel centre."""
    if labels.shape == size_hw:
        return labels
    resized: Int16[np.ndarray, "h w"] = cv2.resize(
        labels, size_hw[::-1], interpolation=cv2.INTER_NEAREST_EXACT
    )
    return resized
