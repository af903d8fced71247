"""Label-free metrics of features: effective rank, alignment and uniformity."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError

_EPSILON = 1e-7  # of RankMe, added to each normalised singular value
_NEARNESS = 2.0  # t of uniformity
_ROWS_AT_ONCE = 8192
_PAIRS_AT_ONCE = 2**22  # 16 MB of fp32
PAIRED_IMAGES = 4096
"""Uniformity uses all pairs of at most this many images."""


def effective_rank(features: Float[Tensor, "M D"]) -> float:
    """RankMe (Garrido et al., 2023): exp of the entropy of the normalised singular values.

    The singular values are the roots of the eigenvalues of the D x D Gram matrix, summed in fp64.
    Those below 1e-8 of the largest are lost to rounding, which is less than the epsilon that the
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
    """The mean squared distance between two views of each image on the unit sphere, from 0
    (identical) to 4 (opposite) (Wang and Isola, 2020)."""
    total = 0.0
    pieces = (_checked(views).split(_ROWS_AT_ONCE) for views in (first, second))
    for one, other in zip(*pieces, strict=True):
        total += float((_unit(one) - _unit(other)).square().sum(dtype=torch.float64))
    return total / len(first)


def uniformity(features: Float[Tensor, "M D"], most: int = PAIRED_IMAGES) -> float:
    """The log of the mean of exp(-2 squared distance) over pairs of images on the unit sphere: 0
    if all are identical, about -4 if they are spread evenly (Wang and Isola, 2020).

    Only `most` evenly spaced images are used, so the cost is bounded.
    """
    images = len(_checked(features))
    if images < 2:
        raise UserError(f"uniformity needs pairs, but there is {images} image; give two or more")
    kept = min(images, max(2, most))
    points = _unit(features[torch.arange(kept) * images // kept])
    lengths = points.square().sum(dim=1)  # one, or zero for a feature that is zero
    near, first = 0.0, 0
    for rows in points.split(max(1, _PAIRS_AT_ONCE // kept)):
        here = slice(first, first + len(rows))
        squared = (lengths[here, None] + lengths - 2 * rows @ points.T).clamp_min(0)
        # An image is not a pair with itself.
        weights = (-_NEARNESS * squared).exp()
        weights[torch.arange(len(rows)), torch.arange(here.start, here.stop)] = 0
        near += float(weights.sum(dtype=torch.float64))
        first = here.stop
    return math.log(near / (kept * (kept - 1)))


def _unit(rows: Float[Tensor, "m D"]) -> Float[Tensor, "m D"]:
    return functional.normalize(rows.float(), dim=1)


def _checked(features: Float[Tensor, "M D"]) -> Float[Tensor, "M D"]:
    """The features, or an error if there are none or if they are not finite."""
    if len(features) == 0:
        raise UserError("there are no features to evaluate; at least one image is needed")
    if not all(bool(rows.isfinite().all()) for rows in features.split(_ROWS_AT_ONCE)):
        raise UserError("the features are not finite; the run diverged")
    return features
