"""Photographs for networks, and made-up pictures that behave like them: smooth colours, noise."""

import numpy as np
import torch
from PIL import Image
from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from torch import Tensor
from torchvision.transforms.v2 import functional as v2

from tests.real_data import FOLDER


def photograph(width: int = 320, height: int = 240, *, seed: int = 1) -> Image.Image:
    """Large soft patches of any colour, a little noise on top."""
    chance = np.random.default_rng(seed)
    coarse = chance.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = chance.integers(-12, 13, (height, width, 3))
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))


def photographs(count: int, channels: int, height: int, width: int) -> Tensor:
    """Normalised photographs of this size, real ones if there are any; colours repeat."""
    files = sorted((FOLDER / "photos").glob("*.JPEG"))[:count]
    found = [Image.open(file).convert("RGB") for file in files]
    found += [photograph(seed=seed) for seed in range(count - len(found))]
    shown = [v2.to_image(picture.resize((width, height))) for picture in found]
    pixels = v2.to_dtype(torch.stack(shown), torch.float32, scale=True)
    images: Tensor = v2.normalize(pixels, [*IMAGENET_DEFAULT_MEAN], [*IMAGENET_DEFAULT_STD])
    return images[:, torch.arange(channels) % 3].as_subclass(Tensor)
