"""Made-up pictures that behave like photographs: smooth colours with some noise."""

import numpy as np
from PIL import Image


def photograph(width: int = 320, height: int = 240, *, seed: int = 1) -> Image.Image:
    """Large soft patches of any colour, a little noise on top."""
    chance = np.random.default_rng(seed)
    coarse = chance.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = chance.integers(-12, 13, (height, width, 3))
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))
