"""Pictures for audits: scenes that can be told apart, written in many ways."""

from pathlib import Path

import cv2
import numpy as np
from PIL import Image

from attmask.data.synthetic import scene


def colours(index: int, size: int = 64) -> np.ndarray:
    """The pixels of one scene."""
    return np.asarray(scene(index, seed=7, size=size).image)


def write(path: Path, pixels: np.ndarray) -> None:
    """Save pixels of 8 bits as the ending says, without loss where it can be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write_deep(path: Path, pixels: np.ndarray) -> None:
    """Save pixels of 16 bits and any channels (red, green, blue first) with OpenCV."""
    path.parent.mkdir(parents=True, exist_ok=True)
    order = [2, 1, 0, 3][: pixels.shape[2]] if pixels.ndim == 3 else None
    assert cv2.imwrite(str(path), pixels if order is None else pixels[:, :, order])
