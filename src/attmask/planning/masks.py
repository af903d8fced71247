"""Masks with stated numbers of hidden patches, for steps on tensors that have no values."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attmask.data.views import GLOBAL_VIEWS
from attmask.host import to_device
from attmask.mask import Grid, Mask
from attmask.masking import Masker, Nothing

_STEPS = 8
_DEVIATIONS = 4.75  # of a normal distribution: exceeded once in a million


@dataclass(frozen=True)
class CountedMasks(Masker):
    """Hides `total` patches in a view of a micro-batch, at most `most` of an image.

    Time and memory of a step depend on these two numbers, not on which patches are hidden.
    """

    total: int = 0
    most: int = 0

    def mask(
        self,
        attention: Float[Tensor, "B N"],
        grid: Grid | None = None,
        *,
        step: int,
        first_image: int = 0,
        view: int = 0,
    ) -> Mask:
        """The first patches of the first images, whatever the attention."""
        images, patches = attention.shape
        counts = np.clip(self.total - self.most * np.arange(images), 0, self.most)
        place = torch.arange(patches, device=attention.device)
        return Mask(place < to_device(counts[:, None], attention.device), counts)


def largest_masks(masker: Masker, images: int, grid: Grid) -> CountedMasks:
    """The largest ratio in as many views of a micro-batch as are masked once in a million."""
    views = GLOBAL_VIEWS * images
    chance = masker.probability
    spread = _DEVIATIONS * math.sqrt(views * chance * (1 - chance))
    masked = min(views, math.ceil(views * chance + spread))
    hides = not isinstance(masker.strategy, Nothing)
    most = int(math.prod(grid) * masker.ratio[1]) if hides and chance else 0
    return _counted(masker, math.ceil(masked / GLOBAL_VIEWS) * most, most)


def expected_masks(masker: Masker, images: int, grid: Grid) -> CountedMasks:
    """The mean numbers of hidden patches, from draws of the strategy itself."""
    each_view = masker.per_image or masker.strategy.ratio_per == "view"
    middle = sum(masker.ratio) / 2
    # One ratio for a whole step would need many steps for a mean.
    ratio = masker.ratio if each_view else (middle, middle)
    drawn = replace(masker, probability=1.0, ratio=ratio)
    attention = torch.zeros(images, math.prod(grid))
    counts = np.stack(
        [
            np.concatenate(
                [drawn.mask(attention, grid, step=s, view=v).counts for v in range(GLOBAL_VIEWS)]
            )
            for s in range(_STEPS)
        ]
    )
    most = round(counts.max(axis=1).mean()) if masker.probability else 0
    total = round(images * masker.probability * counts.mean())
    return _counted(masker, total, most)


def _counted(masker: Masker, total: int, most: int) -> CountedMasks:
    return CountedMasks(
        masker.strategy,
        masker.ratio,
        masker.probability,
        masker.per_image,
        masker.seed,
        total,
        most,
    )
