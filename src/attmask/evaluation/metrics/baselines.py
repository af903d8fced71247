"""Two simple baselines: raw pixels, and the mean and std of the colours."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.images import CachedCrops


def pixel_features(bank: CachedCrops, queries: CachedCrops) -> tuple[Features, Features]:
    """Raw pixels minus the mean image of the bank; without centring all cosines are near one."""
    pixels = bank.pixels.flatten(1).float()
    centre = pixels.mean(dim=0)
    return (
        Features(values=pixels - centre, labels=bank.labels),
        Features(values=queries.pixels.flatten(1).float() - centre, labels=queries.labels),
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
    pixels = crops.pixels.flatten(2).float()
    return torch.cat([pixels.mean(dim=2), pixels.std(dim=2, correction=0)], dim=1)
