"""Two simple baselines: raw pixels, and the mean and std of the colours."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask import distributed
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.images import CachedCrops

PIXELS = 48
"""Larger crops are averaged down to this side, so that 10,000 of them fit into 0.3 GB."""


def pixel_features(bank: CachedCrops, queries: CachedCrops) -> tuple[Features, Features]:
    """Raw pixels minus the mean image of the bank; without centring all cosines are near one.

    All processes call it together, each with its share of the crops.
    """
    pixels = _small_pixels(bank)
    centre = pixels.mean(dim=0)
    return (
        Features(values=pixels - centre, labels=bank.labels),
        Features(values=_small_pixels(queries) - centre, labels=queries.labels),
    )


def _small_pixels(crops: CachedCrops) -> Float[Tensor, "M P"]:
    height, width = crops.pixels.shape[-2:]
    size = (min(height, PIXELS), min(width, PIXELS))
    own = [
        functional.adaptive_avg_pool2d(part.float(), size).flatten(1)
        for part in crops.pixels.split(256)
    ]
    return distributed.gather_rows(
        torch.cat(own) if own else torch.empty(0, crops.pixels.shape[1] * size[0] * size[1])
    )


def colour_features(bank: CachedCrops, queries: CachedCrops) -> tuple[Features, Features]:
    """Mean and std of each channel, standardised by the bank, and a constant.

    The constant keeps the length: by cosine alone, a pale and a vivid image of one hue are equal.
    """
    colours = _channel_statistics(bank)
    centre, spread = colours.mean(dim=0), colours.std(dim=0, correction=0).clamp_min(1e-6)

    def standardised(statistics: Float[Tensor, "M S"]) -> Float[Tensor, "M S+1"]:
        scaled = (statistics - centre) / spread
        # The typical norm of a row of S standardised numbers.
        return functional.pad(scaled, (0, 1), value=math.sqrt(len(centre)))

    return (
        Features(values=standardised(colours), labels=bank.labels),
        Features(values=standardised(_channel_statistics(queries)), labels=queries.labels),
    )


def _channel_statistics(crops: CachedCrops) -> Float[Tensor, "M S"]:
    own = [
        torch.cat([pixels.mean(dim=2), pixels.std(dim=2, correction=0)], dim=1)
        for pixels in (part.flatten(2).float() for part in crops.pixels.split(256))
    ]
    return distributed.gather_rows(
        torch.cat(own) if own else torch.empty(0, 2 * crops.pixels.shape[1])
    )
