"""How features lie in space, without any label: how many directions, how near, how spread."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError

_EPSILON = 1e-7  # RankMe's, added to each share
_NEARNESS = 2.0  # uniformity's t
_ROWS_AT_ONCE = 8192
_PAIRS_AT_ONCE = 2**22  # 16 MB of fp32
PAIRED_IMAGES = 4096
"""Uniformity looks at all pairs of at most so many images."""


def effective_rank(features: Float[Tensor, "M D"]) -> float:
    """RankMe (Garrido et al., 2023): exp of the entropy of the singular values' shares.

    The singular values are roots of the eigenvalues of the D x D products, summed in fp64. Those
    below 1e-8 of the largest are lost to rounding, which is less than the epsilon that the
    definition adds to each. Features that are all zero have rank 0.
    """
    products = _checked(features).new_zeros(features.shape[1], features.shape[1]).double()
    for rows in features.split(_ROWS_AT_ONCE):
        products.addmm_(rows.double().T, rows.double())
    most = min(features.shape)
    values = torch.linalg.eigvalsh(products)[-most:].clamp_min(0).sqrt()
    if float(values.sum()) == 0:
        return 0.0
    shares = values / values.sum() + _EPSILON
    return math.exp(float(torch.special.entr(shares).sum()))


def alignment(first: Float[Tensor, "M D"], second: Float[Tensor, "M D"]) -> float:
    """The mean squared distance of two views of each image on the unit sphere: 0 the same, 4
    opposite (Wang and Isola, 2020)."""
    total = 0.0
    pieces = (_checked(views).split(_ROWS_AT_ONCE) for views in (first, second))
    for one, other in zip(*pieces, strict=True):
        total += float((_unit(one) - _unit(other)).square().sum(dtype=torch.float64))
    return total / len(first)


def uniformity(features: Float[Tensor, "M D"], most: int = PAIRED_IMAGES) -> float:
    """log of the mean of exp(-2 squared distance) over pairs of images on the unit sphere: 0 all
    the same, about -4 spread over a wide sphere (Wang and Isola, 2020).

    All pairs of `most` images, evenly spaced, so that the cost is bounded.
    """
    images = len(_checked(features))
    if images < 2:
        raise UserError(f"uniformity is about pairs, but there is {images} image; give two or more")
    kept = min(images, max(2, most))
    points = _unit(features[torch.arange(kept) * images // kept])
    lengths = points.square().sum(dim=1)  # one, or zero where a feature is
    near, first = 0.0, 0
    for rows in points.split(max(1, _PAIRS_AT_ONCE // kept)):
        here = slice(first, first + len(rows))
        squared = (lengths[here, None] + lengths - 2 * rows @ points.T).clamp_min(0)
        # An image is no pair with itself.
        weights = (-_NEARNESS * squared).exp()
        weights[torch.arange(len(rows)), torch.arange(here.start, here.stop)] = 0
        near += float(weights.sum(dtype=torch.float64))
        first = here.stop
    return math.log(near / (kept * (kept - 1)))


def _unit(rows: Float[Tensor, "m D"]) -> Float[Tensor, "m D"]:
    return functional.normalize(rows.float(), dim=1)


def _checked(features: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """The features, if there is something to measure."""
    if len(features) == 0:
        raise UserError("there are no features to measure; at least one image is needed")
    if not all(bool(rows.isfinite().all()) for rows in features.split(_ROWS_AT_ONCE)):
        raise UserError("features to measure are not finite; the run diverged")
    return features
