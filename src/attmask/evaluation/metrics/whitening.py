"""PCA whitening (Jégou & Chum 2012)."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError

_ROWS_AT_ONCE = 65_536
# A direction with less variance, relative to the first one, is only rounding.
_LEAST_VARIANCE = 1e-9


@dataclass(frozen=True, eq=False)
class Whitening:
    """A whitening transform: mean and scaled principal directions."""

    centre: Float[Tensor, "D"]
    directions: Float[Tensor, "D P"]
    """The principal directions, each divided by the std along it."""

    def __call__(self, vectors: Float[Tensor, "M D"]) -> Float[Tensor, "M P"]:
        """L2-normalise, whiten, and L2-normalise again."""
        unit = functional.normalize(vectors.double(), dim=1)
        return functional.normalize((unit - self.centre) @ self.directions, dim=1).float()


def learn_whitening(vectors: Float[Tensor, "M D"], width: int | None = None) -> Whitening:
    """Learn whitening on L2-normalised vectors, with at most `width` directions (None: all).

    Directions without variance are left out, so fewer may remain.
    """
    if not len(vectors):
        raise ValueError("whitening needs at least one vector")
    size = vectors.shape[1]
    total = torch.zeros(size, dtype=torch.float64)
    for piece in vectors.split(_ROWS_AT_ONCE):
        total += functional.normalize(piece.double(), dim=1).sum(dim=0)
    centre = total / len(vectors)
    covariance = torch.zeros(size, size, dtype=torch.float64)
    for piece in vectors.split(_ROWS_AT_ONCE):
        apart = functional.normalize(piece.double(), dim=1) - centre
        covariance += apart.T @ apart
    variance, directions = torch.linalg.eigh(covariance / len(vectors))
    variance, directions = variance.flip(0), directions.flip(1)
    kept = int((variance > max(_LEAST_VARIANCE * float(variance[0]), 1e-15)).sum())
    if kept == 0:
        raise UserError(
            f"the {len(vectors)} vectors to learn whitening from are all equal; "
            "use more images, or set whitening=null"
        )
    kept = kept if width is None else min(kept, width)
    return Whitening(centre, directions[:, :kept] / variance[:kept].sqrt())
