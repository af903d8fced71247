"""Weighted k-nearest-neighbour classification on frozen features, and its two simplest rivals."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.features import CachedCrops, Features

_SIMILARITIES_AT_ONCE = 2**25  # 128 MB of fp32, whatever the size of the bank


@dataclass(frozen=True)
class Accuracy:
    """Per cent of queries whose class is the first, or among the first five, of the vote."""

    top1: float
    top5: float


def knn_accuracy(
    bank: Features, queries: Features, *, k: int, temperature: float = 0.07, classes: int
) -> Accuracy:
    """Let the k most similar bank images vote with weight exp(cosine / temperature).

    Ties: of equally similar bank images the earlier one counts; of classes with equal votes the
    lower number wins. With fewer than five classes, top-5 looks at all of them.
    """
    bank_labels = _checked_labels("bank", bank, classes)
    query_labels = _checked_labels("queries", queries, classes)
    if bank.cls.shape[1] != queries.cls.shape[1]:
        raise UserError(
            f"bank features are {bank.cls.shape[1]} wide, query features {queries.cls.shape[1]}; "
            "extract both with the same network"
        )
    if not 1 <= k <= len(bank_labels):
        raise UserError(
            f"k = {k} neighbours were asked of a bank of {len(bank_labels)} images; "
            f"use k from 1 to {len(bank_labels)}, or a larger bank"
        )
    if not temperature > 0:
        raise UserError(f"k-NN temperature {temperature} is not positive; the paper's is 0.07")
    first = five = done = 0
    for similarity, index in _neighbours(bank.cls, queries.cls, k):
        votes = _votes(similarity, bank_labels[index], temperature, classes)
        ranked = votes.argsort(dim=1, descending=True, stable=True)
        right = ranked == query_labels[done : done + len(ranked), None]
        first += int(right[:, :1].sum())
        five += int(right[:, :5].sum())
        done += len(ranked)
    return Accuracy(top1=100 * first / done, top5=100 * five / done)


def _checked_labels(name: str, features: Features, classes: int) -> Int[Tensor, "M"]:
    if features.labels is None:
        raise UserError(f"the {name} of k-NN have no labels; put the images in one folder a class")
    if len(features.labels) == 0:
        raise UserError(f"the {name} of k-NN are empty; at least one image is needed")
    if int(features.labels.min()) < 0 or int(features.labels.max()) >= classes:
        raise UserError(
            f"the {name} of k-NN have labels {int(features.labels.min())} to "
            f"{int(features.labels.max())} for {classes} classes; give the true number of classes"
        )
    if not bool(features.cls.isfinite().all()):
        raise UserError(f"the {name} of k-NN have features that are not finite; the run diverged")
    return features.labels


def _neighbours(
    bank: Float[Tensor, "M D"], queries: Float[Tensor, "Q D"], k: int
) -> Iterator[tuple[Float[Tensor, "q k"], Int[Tensor, "q k"]]]:
    """Similarity and bank index of the k nearest, for chunks of queries that fit in memory."""
    columns = functional.normalize(bank.float(), dim=1).T
    for chunk in queries.split(max(1, _SIMILARITIES_AT_ONCE // len(bank))):
        similarity = functional.normalize(chunk.float(), dim=1) @ columns
        found = similarity.topk(min(k + 1, len(bank)), dim=1)
        value, index = found.values[:, :k], found.indices[:, :k]
        # topk promises no order among equals: rows where the k-th place is shared are sorted.
        shared = (found.values[:, k:] == value[:, -1:]).any(dim=1)
        if bool(shared.any()):
            ordered = similarity[shared].sort(dim=1, descending=True, stable=True)
            value[shared], index[shared] = ordered.values[:, :k], ordered.indices[:, :k]
        yield value, index


def _votes(
    similarity: Float[Tensor, "q k"], labels: Int[Tensor, "q k"], temperature: float, classes: int
) -> Float[Tensor, "q classes"]:
    # Less the largest, so that a low temperature cannot overflow; the order stays the same.
    nearness = similarity.double() - similarity.double().amax(dim=1, keepdim=True)
    votes = torch.zeros(len(similarity), classes, dtype=torch.float64, device=similarity.device)
    return votes.scatter_add_(1, labels, (nearness / temperature).exp())


def pixel_features(bank: CachedCrops, queries: CachedCrops) -> tuple[Features, Features]:
    """Raw pixels as features, less the bank's mean image: else all cosines are near one."""
    pixels = bank.images.flatten(1).float()
    centre = pixels.mean(dim=0)
    return (
        Features(cls=pixels - centre, labels=bank.labels),
        Features(cls=queries.images.flatten(1).float() - centre, labels=queries.labels),
    )


def colour_features(bank: CachedCrops, queries: CachedCrops) -> tuple[Features, Features]:
    """Mean and deviation of each channel, standardised by the bank, with a constant beside them.

    Cosine ignores length: without the constant a pale and a vivid image of one hue are the same.
    """
    colours = _channel_statistics(bank)
    centre, spread = colours.mean(dim=0), colours.std(dim=0, correction=0).clamp_min(1e-6)

    def standardised(statistics: Float[Tensor, "M S"]) -> Float[Tensor, "M S+1"]:
        scaled = (statistics - centre) / spread
        # As long as a typical row of S standardised numbers.
        return functional.pad(scaled, (0, 1), value=math.sqrt(len(centre)))

    return (
        Features(cls=standardised(colours), labels=bank.labels),
        Features(cls=standardised(_channel_statistics(queries)), labels=queries.labels),
    )


def _channel_statistics(crops: CachedCrops) -> Float[Tensor, "M S"]:
    pixels = crops.images.flatten(2).float()
    return torch.cat([pixels.mean(dim=2), pixels.std(dim=2, correction=0)], dim=1)
