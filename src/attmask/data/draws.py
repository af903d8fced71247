"""Every random choice of a view, drawn from its counters before any pixel is read.

The distribution is that of the reference: torchvision's RandomResizedCrop and ColorJitter, then
grey, blur and solarisation.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attmask.data.colours import Jitter, Look
from attmask.data.views import GLOBAL_VIEWS, ViewsConfig

CropBox = tuple[int, int, int, int]  # left, top, right, bottom

_CROP_ATTEMPTS = 10
_ORDERS = tuple(itertools.permutations(range(4)))
_DRAWS = 4 * _CROP_ATTEMPTS + 11


@dataclass(frozen=True)
class ViewParameters:
    """The crop box of a view, in pixels of the image, and its colour augmentation."""

    size: int
    box: CropBox
    flip: bool
    look: Look


def draw(
    config: ViewsConfig,
    image_size_wh: tuple[int, int],
    *,
    seed: int,
    epoch: int,
    sample: int,
    view: int,
) -> ViewParameters:
    """Make all random choices of view number `view` (0 and 1 are global) of one image."""
    is_global = view < GLOBAL_VIEWS
    smallest, split = config.local_scale_min, config.split_scale
    scale = (split, 1.0) if is_global else (smallest, split)
    # Each choice has its place in one row of numbers, so that a change of one setting (no blur,
    # say) leaves all other choices as they were.
    chance = np.random.Philox(key=seed, counter=[0, view, sample, epoch])
    numbers = np.random.Generator(chance).random(_DRAWS).tolist()
    crops, colours = numbers[: 4 * _CROP_ATTEMPTS], numbers[4 * _CROP_ATTEMPTS :]
    flip, jitter, order, *strengths, grey, blur, sigma, solarise = colours
    jittered = jitter < config.jitter_probability
    blurred = blur < config.blur_probabilities[min(view, GLOBAL_VIEWS)]
    return ViewParameters(
        size=config.global_size if is_global else config.local_size,
        box=_draw_box(image_size_wh, scale, config.aspect, crops),
        flip=flip < config.flip_probability,
        look=Look(
            jitter=_draw_jitter(config, order, strengths) if jittered else None,
            grey=grey < config.grey_probability,
            blur_sigma=_between(*config.blur_sigma, sigma) if blurred else None,
            solarise=view == 1 and solarise < config.solarise_probability,
        ),
    )


def _between(low: float, high: float, number: float) -> float:
    return low + (high - low) * number


def _draw_box(
    image_size_wh: tuple[int, int],
    scale: tuple[float, float],
    aspect: tuple[float, float],
    numbers: Sequence[float],
) -> CropBox:
    """The rule of torchvision's RandomResizedCrop: ten attempts, then the middle of the image."""
    width, height = image_size_wh
    for attempt in range(_CROP_ATTEMPTS):
        area, shape, across, down = numbers[4 * attempt : 4 * attempt + 4]
        pixels = width * height * _between(*scale, area)
        ratio = math.exp(_between(math.log(aspect[0]), math.log(aspect[1]), shape))
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(across * (width - w + 1)), int(down * (height - h + 1))
            return left, top, left + w, top + h
    ratio = min(max(width / height, aspect[0]), aspect[1])
    w = max(1, min(width, round(height * ratio)))
    h = max(1, min(height, round(width / ratio)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _draw_jitter(config: ViewsConfig, order: float, strengths: Sequence[float]) -> Jitter:
    """The rule of torchvision's ColorJitter: factors around one, hue around zero, any order."""
    spreads = (config.brightness, config.contrast, config.saturation)
    bright, contrast, saturation = (
        _between(max(0.0, 1 - spread), 1 + spread, number)
        for spread, number in zip(spreads, strengths[:3], strict=True)
    )
    hue = _between(-config.hue, config.hue, strengths[3])
    return Jitter(_ORDERS[int(order * len(_ORDERS))], (bright, contrast, saturation, hue))
