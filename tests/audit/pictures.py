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


def natural(seed: int, width: int = 200, height: int = 150) -> np.ndarray:
    """Chance at many scales, the large ones strongest, as in photographs."""
    chance = np.random.default_rng(seed)
    pixels = np.full((height, width, 3), 128.0)
    for octave in range(6):
        coarse = chance.normal(0, 50 / 1.6**octave, (3 * 2**octave, 4 * 2**octave, 3))
        pixels += cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC)
    return pixels.clip(0, 255).astype(np.uint8)
