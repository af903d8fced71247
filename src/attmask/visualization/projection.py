"""Principal components of patches, with signs and directions that do not jump."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor

_SHOWN = 2.0
"""Standard deviations at which colours end."""


@dataclass(frozen=True, eq=False)
class Projection:
    """The scores of patches on three principal components, each of variance 1."""

    scores: Float64[Tensor, "M 3"]

    @property
    def range(self) -> Float[Tensor, "M 3"]:
        """Scores from -1 to 1; what lies beyond two standard deviations is cut."""
        return (self.scores / _SHOWN).clamp(-1, 1).float()


def project(patches: Float[Tensor, "M D"]) -> Projection:
    """Project patches on their three principal components.

    Of each component, the entry of the largest absolute value is positive. A direction without
    variance has the score 0.
    """
    centred = patches.double() - patches.double().mean(dim=0)
    _, lengths, directions = torch.linalg.svd(centred, full_matrices=False)
    kept = min(3, len(lengths))
    directions = directions[:kept]
    largest = directions.gather(1, directions.abs().argmax(dim=1, keepdim=True))
    scores = centred @ (directions * largest.sign()).T
    deviation = scores.square().mean(dim=0).sqrt()
    is_real = lengths[:kept] > 1e-9 * lengths[0].clamp_min(1e-30)
    scores = torch.where(is_real, scores / deviation.clamp_min(1e-30), 0.0)
    return Projection(torch.nn.functional.pad(scores, (0, 3 - kept)))


def foreground(patches: Float[Tensor, "M D"], attention: Float[Tensor, " M"]) -> Bool[Tensor, " M"]:
    """The patches on one side of the mean of the first component: the more attended side.

    That is the side whose patches have the larger mean attention.
    """
    side = project(patches).scores[:, 0] > 0
    if not side.any():  # all patches are alike
        return torch.ones_like(side)
    return side if attention[side].mean() >= attention[~side].mean() else ~side


def aligned(moved: Projection, fixed: Projection) -> Projection:
    """Scores rotated to be as near as can be to those of the same patches in another network."""
    left, _, right = torch.linalg.svd(moved.scores.T @ fixed.scores)
    return Projection(moved.scores @ (left @ right))
