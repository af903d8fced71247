"""Multi-crop: two large and several small views of an image, each cut and recoloured by chance.

Chance and pixels are apart. `draw` makes every random choice of one view from its counters
(seed, epoch, sample, view); `render` carries the choices out. The distribution is that of the
reference: torchvision's RandomResizedCrop and ColorJitter, then grey, blur and solarisation.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torchvision.transforms.functional as recolour
from jaxtyping import Float, UInt8
from PIL import Image, ImageFilter
from pydantic import Field, model_validator
from torch import Tensor

from attmask.errors import UserError
from attmask.settings import Config, setting

GLOBAL_VIEWS = 2
SOLARISE_THRESHOLD = 128

Probability = Annotated[float, Field(ge=0, le=1)]

_CROP_ATTEMPTS = 10
_ORDERS = tuple(itertools.permutations(range(4)))
_DRAWS = 4 * _CROP_ATTEMPTS + 11


class ViewsConfig(Config):
    """How many views an image gets, how large they are and how they are changed."""

    global_size: int = setting(224, "side of the two global crops, in pixels", paper="224", ge=1)
    local_size: int = setting(96, "side of the local crops, in pixels", paper="96", ge=1)
    local_crops: int = setting(10, "local crops an image", paper="10; 6 on 20 % of ImageNet", ge=0)
    split_scale: float = setting(
        0.25,
        "s: global crops cover (s, 1) of the image's area, local crops (local_scale_min, s)",
        paper="0.25 iBOT, 0.4 DINO, 0.32 for 300 epochs",
        gt=0,
        le=1,
    )
    local_scale_min: float = setting(
        0.05, "least share of the image's area in a local crop", paper="0.05", gt=0, le=1
    )
    aspect: tuple[float, float] = setting(
        (3 / 4, 4 / 3), "least and greatest width / height of a crop", paper="3/4, 4/3"
    )
    flip_probability: Probability = setting(0.5, "share of mirrored views", paper="0.5")
    jitter_probability: Probability = setting(0.8, "share of views with new colours", paper="0.8")
    brightness: float = setting(0.4, "greatest relative change of brightness", paper="0.4", ge=0)
    contrast: float = setting(0.4, "greatest relative change of contrast", paper="0.4", ge=0)
    saturation: float = setting(0.2, "greatest relative change of saturation", paper="0.2", ge=0)
    hue: float = setting(
        0.1, "greatest turn of the hue, as a share of the circle", paper="0.1", ge=0, le=0.5
    )
    grey_probability: Probability = setting(0.2, "share of views turned grey", paper="0.2")
    blur_probabilities: tuple[Probability, Probability, Probability] = setting(
        (1.0, 0.1, 0.5),
        "share of blurred views: first global, second global, local",
        paper="1, 0.1, 0.5",
    )
    blur_sigma: tuple[float, float] = setting(
        (0.1, 2.0), "least and greatest deviation of the blur, in pixels", paper="0.1, 2"
    )
    solarise_probability: Probability = setting(
        0.2, "share of second global views whose bright half is inverted", paper="0.2"
    )

    @model_validator(mode="after")
    def _ranges_are_in_order(self) -> "ViewsConfig":
        if self.local_crops and self.local_scale_min > self.split_scale:
            raise ValueError(
                f"local_scale_min {self.local_scale_min} is above split_scale {self.split_scale}; "
                f"local crops cover (local_scale_min, split_scale) of the image"
            )
        if not 0 < self.aspect[0] <= self.aspect[1]:
            raise ValueError(f"aspect {self.aspect} must be (least, greatest), both above 0")
        if not 0 <= self.blur_sigma[0] <= self.blur_sigma[1]:
            raise ValueError(f"blur_sigma {self.blur_sigma} must be (least, greatest), from 0 up")
        return self

    @property
    def count(self) -> int:
        """Views an image gets, global and local."""
        return GLOBAL_VIEWS + self.local_crops

    @property
    def time_factor(self) -> float:
        """The paper's gamma: the cost of a step against one pass over one global view."""
        return GLOBAL_VIEWS + self.local_crops * (self.local_size / self.global_size) ** 2


@dataclass(frozen=True)
class Views:
    """The views of a batch: bytes as they are cut, floats once they are normalised."""

    globals: UInt8[Tensor, "2 B C size size"] | Float[Tensor, "2 B C size size"]
    locals: UInt8[Tensor, "V B C small small"] | Float[Tensor, "V B C small small"]

    def to(self, device: torch.device | str) -> "Views":
        """The same views on a device."""
        return Views(
            self.globals.to(device, non_blocking=True), self.locals.to(device, non_blocking=True)
        )

    def pin_memory(self) -> "Views":
        """The same views in page-locked memory, from which copies to a GPU need no waiting."""
        return Views(self.globals.pin_memory(), self.locals.pin_memory())

    def normalise(self, mean: Sequence[float], std: Sequence[float]) -> "Views":
        """Bytes to floats of about zero mean and unit deviation: (x / 255 - mean) / std."""
        assert self.globals.dtype == torch.uint8, "these views are normalised already"
        device = self.globals.device
        shape = (-1, 1, 1)
        deviation = torch.tensor(std, device=device).view(shape)
        scale = 1 / (255 * deviation)
        shift = -torch.tensor(mean, device=device).view(shape) / deviation
        return Views(
            torch.addcmul(shift, self.globals, scale), torch.addcmul(shift, self.locals, scale)
        )

    def split(self, parts: int) -> list["Views"]:
        """Equal micro-batches, in the order of the images."""
        batch = self.globals.shape[1]
        if parts < 1 or batch % parts:
            raise UserError(
                f"a batch of {batch} images cannot be split into {parts} equal parts; "
                f"use a number of parts that divides {batch}"
            )
        pairs = zip(self.globals.chunk(parts, 1), self.locals.chunk(parts, 1), strict=True)
        return [Views(large, small) for large, small in pairs]


@dataclass(frozen=True)
class Jitter:
    """Colour changes: factors of brightness, contrast, saturation and hue, and their order."""

    order: tuple[int, ...]
    factors: tuple[float, float, float, float]


@dataclass(frozen=True)
class ViewParameters:
    """Every random choice of one view; `box` is left, top, right, bottom in the image's pixels."""

    size: int
    box: tuple[int, int, int, int]
    flip: bool
    jitter: Jitter | None
    grey: bool
    blur_sigma: float | None
    solarise: bool


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
        jitter=_draw_jitter(config, order, strengths) if jittered else None,
        grey=grey < config.grey_probability,
        blur_sigma=_between(*config.blur_sigma, sigma) if blurred else None,
        solarise=view == 1 and solarise < config.solarise_probability,
    )


def _between(low: float, high: float, number: float) -> float:
    return low + (high - low) * number


def _draw_box(
    image_size_wh: tuple[int, int],
    scale: tuple[float, float],
    aspect: tuple[float, float],
    numbers: Sequence[float],
) -> tuple[int, int, int, int]:
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


_COLOUR_STEPS: tuple[Callable[[Image.Image, float], Image.Image], ...] = (
    recolour.adjust_brightness,
    recolour.adjust_contrast,
    recolour.adjust_saturation,
    recolour.adjust_hue,
)
_GREY_STEPS = 2  # brightness and contrast: the steps that change a picture without colours


def render(image: Image.Image, parameters: ViewParameters) -> UInt8[np.ndarray, "C size size"]:
    """Cut, resize, mirror and recolour one view as its parameters say."""
    side, colours = parameters.size, image.mode == "RGB"
    view = image.resize((side, side), Image.Resampling.BICUBIC, box=parameters.box)
    if parameters.flip:
        view = view.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if parameters.jitter is not None:
        for step in parameters.jitter.order:
            if colours or step < _GREY_STEPS:
                view = _COLOUR_STEPS[step](view, parameters.jitter.factors[step])
    if parameters.grey and colours:
        view = view.convert("L").convert("RGB")
    if parameters.blur_sigma is not None:
        view = view.filter(ImageFilter.GaussianBlur(parameters.blur_sigma))
    if parameters.solarise:
        view = recolour.solarize(view, SOLARISE_THRESHOLD)
    pixels = np.asarray(view).reshape(side, side, -1)
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
