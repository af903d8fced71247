"""Random changes of a training image by timm, drawn by counter."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from timm.data import create_transform
from timm.data.auto_augment import RandAugment, posterize
from timm.data.random_erasing import RandomErasing
from torch import Tensor
from torchvision.transforms import v2

from attmask.data.config import DataConfig
from attmask.finetuning.config import AugmentConfig

_INTERPOLATIONS = {
    "bicubic": v2.InterpolationMode.BICUBIC,
    "bilinear": v2.InterpolationMode.BILINEAR,
    "random": v2.InterpolationMode.BICUBIC,
}


class Augment:
    """Crops, flips, recolours, normalises and erases; the same number always gives the same."""

    def __init__(self, config: AugmentConfig, data: DataConfig, *, size: int) -> None:
        self.channels = data.channels
        mean, std = (v * data.channels if len(v) == 1 else v for v in (data.mean, data.std))
        if data.channels in (1, 3):
            # timm recolours RGB: grey pictures become RGB, whose channels stay equal.
            self._change: Callable[[Image.Image | Tensor], Tensor] = _safe(
                size,
                is_training=True,
                scale=config.scale,
                ratio=config.ratio,
                hflip=config.flip,
                vflip=config.vertical_flip,
                color_jitter=config.color_jitter,
                auto_augment=config.auto_augment,
                interpolation=config.interpolation,
                mean=mean * (3 // data.channels),
                std=std * (3 // data.channels),
                re_prob=config.erasing,
                re_mode="pixel",
            )
            return
        resample = _INTERPOLATIONS[config.interpolation]
        self._change = v2.Compose(
            [
                v2.RandomResizedCrop(size, config.scale, config.ratio, resample, antialias=True),
                v2.RandomHorizontalFlip(config.flip),
                v2.RandomVerticalFlip(config.vertical_flip),
                v2.ToDtype(torch.float32, scale=True),
                v2.Normalize(mean, std),
                RandomErasing(config.erasing, mode="pixel", device="cpu"),
            ]
        )

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], number: int
    ) -> Float[Tensor, "C height width"]:
        """The normalised image, with the changes that `number` draws."""
        with seeded(number):
            if self.channels not in (1, 3):
                own = np.ascontiguousarray(pixels.transpose(2, 0, 1))
                return self._change(torch.from_numpy(own))
            colours = np.repeat(pixels, 3, axis=2) if self.channels == 1 else pixels
            return self._change(Image.fromarray(colours))[: self.channels].contiguous()


def _safe(size: int, **settings: Any) -> Callable[[Image.Image | Tensor], Tensor]:
    """timm's transform; where its RandAugment keeps no bit of a picture, the picture is black.

    Pillow before version 13 made it so, and newer ones raise an error.
    """
    transform: Any = create_transform(size, **settings)
    for step in transform.transforms:
        for op in step.ops if isinstance(step, RandAugment) else ():
            if op.aug_fn is posterize:
                op.aug_fn = _posterized
    change: Callable[[Image.Image | Tensor], Tensor] = transform
    return change


def _posterized(image: Image.Image, bits_to_keep: int, **_: Any) -> Image.Image:
    if bits_to_keep < 1:
        return Image.new(image.mode, image.size)
    kept: Image.Image = posterize(image, bits_to_keep)
    return kept


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Draw by a number what timm draws from the generators of Python, NumPy and PyTorch.

    These belong to the whole process. A worker process has one thread, so nobody else draws there;
    with train.workers=0 another thread of the training that did would change an image.
    """
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(number)
    np.random.seed(number % 2**32)
    torch.default_generator.manual_seed(number % 2**63)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])
