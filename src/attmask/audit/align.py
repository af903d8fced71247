"""Decide whether a picture is a crop of another: find the edges of the crop, then compare.

The edges are refined by Gauss-Newton steps on two sizes of the thumbnails, many pairs at once.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float32
from torch import Tensor
from torch.nn import functional

_BATCH = 256  # pairs; what one step needs stays in the cache
_COARSE_STEPS, _FINE_STEPS = 1, 4
# Correlations of a copy with its original: of all, and of the details without the large shapes.
_COARSE = 0.92, 0.75  # after one step on the halved thumbnails, enough for a closer look
_FINE = 0.95, 0.92
_LEAST_DETAIL = 1.5  # std of the details in levels of 255; below, noise would decide
_LEAST_CORNER = 0.05  # weakest slope / strongest, squared; below, it is but one straight edge
_LARGEST_STEP = 0.06
_OUTSIDE, _INSIDE = 0.05, 0.25  # how far an edge may move out of the whole, and into it

GreyImages = Float32[Tensor, "B S S"]
Edges = Float32[Tensor, "B 4"]
Inner = Float32[Tensor, "B s s"]


@dataclass(frozen=True)
class Fit:
    """Whether each part is a cut of its whole, and the edges (left, right, top, bottom) of it."""

    same: Bool[Tensor, " B"]
    edges: Edges


def fit(parts: GreyImages, wholes: GreyImages, edges: Edges) -> Fit:
    """Look for each part in its whole, near the given edges."""
    if not len(parts):
        return Fit(torch.empty(0, dtype=torch.bool), edges)
    batches = zip(parts.split(_BATCH), wholes.split(_BATCH), edges.split(_BATCH), strict=True)
    found = [_fit(part, whole, edge) for part, whole, edge in batches]
    return Fit(torch.cat([f.same for f in found]), torch.cat([f.edges for f in found]))


def has_corners(images: GreyImages) -> Bool[Tensor, " B"]:
    """Whether slopes go in more than one direction: straight edges fit one another anywhere."""
    down, across = torch.gradient(_smooth(images), dim=(1, 2))
    xx, yy, xy = (product.mean(dim=(1, 2)) for product in (across**2, down**2, across * down))
    spread = torch.sqrt((xx - yy) ** 2 + 4 * xy**2)
    return xx + yy - spread > _LEAST_CORNER * (xx + yy + spread)


def _fit(parts: GreyImages, wholes: GreyImages, edges: Edges) -> Fit:
    small, large = (functional.avg_pool2d(images[:, None], 2)[:, 0] for images in (parts, wholes))
    coarse = _compare(small, large, edges, _COARSE_STEPS, _COARSE)
    chosen = coarse.same.nonzero()[:, 0]
    if len(chosen):  # the others are not worth the fine steps
        part, whole = parts[chosen], wholes[chosen]
        fine = _compare(part, whole, coarse.edges[chosen], _FINE_STEPS, _FINE)
        coarse.same[chosen], coarse.edges[chosen] = fine.same, fine.edges
    return coarse


def _compare(
    parts: GreyImages, wholes: GreyImages, edges: Edges, steps: int, least: tuple[float, float]
) -> Fit:
    """Refine the edges, then compare the region between them with the part."""
    parts, wholes = _smooth(parts), _smooth(wholes)
    edges = _refine(parts, wholes, edges, steps)
    cuts = _cut(wholes[:, None], edges)[:, 0]
    parts = _as_coarse(parts, edges)
    fine = _details(parts), _details(cuts)
    detailed = torch.minimum(*(detail.flatten(1).std(dim=1) for detail in fine)) > _LEAST_DETAIL
    alike = (_correlation(parts, cuts) > least[0]) & (_correlation(*fine) > least[1])
    return Fit(detailed & alike, edges)


def _refine(parts: GreyImages, wholes: GreyImages, edges: Edges, steps: int) -> Edges:
    """Move the edges so that the cut is most like the part, whatever its light and contrast."""
    side = parts.shape[-1]
    along = (torch.arange(side) + 0.5) / side
    slopes = torch.gradient(wholes, spacing=1 / side, dim=(2, 1))
    maps = torch.stack([wholes, *slopes], dim=1)
    wanted, _ = _normal(parts)
    least = torch.tensor([-_OUTSIDE, 1 - _INSIDE, -_OUTSIDE, 1 - _INSIDE])
    most = torch.tensor([_INSIDE, 1 + _OUTSIDE, _INSIDE, 1 + _OUTSIDE])
    for _ in range(steps):
        cut, across, down = _cut(maps, edges).unbind(dim=1)
        values, length = _normal(cut)
        moves = (
            torch.stack(
                [
                    across * (1 - along),
                    across * along,
                    *(down * t[:, None] for t in (1 - along, along)),
                ],
                dim=1,
            ).flatten(2)
            / length[:, None]
        )
        moves = moves - moves.mean(dim=2, keepdim=True)
        moves = moves - (moves @ values[:, :, None]) * values[:, None]  # contrast is free
        normal = moves @ moves.transpose(1, 2)
        damping = 1e-3 * normal.diagonal(dim1=1, dim2=2).mean(dim=1) + 1e-9
        normal = normal + damping[:, None, None] * torch.eye(4)
        step = torch.linalg.solve(normal, moves @ (wanted - values)[:, :, None])[:, :, 0]
        edges = (edges + step.clamp(-_LARGEST_STEP, _LARGEST_STEP)).clamp(least, most)
    return edges


def _cut(maps: Float32[Tensor, "B C S S"], edges: Edges) -> Float32[Tensor, "B C S S"]:
    """Cut out the region between the edges, at the size of the original."""
    side = maps.shape[-1]
    along = (torch.arange(side) + 0.5) / side
    begin, end = 2 * edges[:, 0::2, None] - 1, 2 * edges[:, 1::2, None] - 1
    across, down = torch.lerp(begin, end, along).unbind(dim=1)
    grid = torch.stack(torch.broadcast_tensors(across[:, None, :], down[:, :, None]), dim=3)
    return functional.grid_sample(maps, grid, padding_mode="border", align_corners=False)


def _as_coarse(parts: GreyImages, edges: Edges) -> GreyImages:
    """The parts smoothed as much as their cuts are, which are enlarged from fewer pixels."""
    left, right, top, bottom = edges.unbind(dim=1)
    enlarged = 1 / torch.minimum(right - left, bottom - top) - 1
    return torch.lerp(parts, _smooth(parts), (2 * enlarged).clamp(0, 1)[:, None, None])


def _smooth(images: GreyImages) -> GreyImages:
    """Smooth, to remove differences of less than a pixel."""
    wide = functional.pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    wide = wide[:, 1:] + wide[:, :-1]
    wide = wide[:, 1:] + wide[:, :-1]
    wide = wide[:, :, 1:] + wide[:, :, :-1]
    return (wide[:, :, 1:] + wide[:, :, :-1]) / 16


def _details(images: GreyImages) -> Inner:
    """The difference from the mean of the 5 x 5 pixels around."""
    rows = torch.stack([images[:, begin : begin - 4 or None] for begin in range(5)]).mean(dim=0)
    mean = torch.stack([rows[:, :, begin : begin - 4 or None] for begin in range(5)]).mean(dim=0)
    return images[:, 2:-2, 2:-2] - mean


def _normal(
    images: Float32[Tensor, "B s s"],
) -> tuple[Float32[Tensor, "B n"], Float32[Tensor, "B 1"]]:
    """Vectors of mean 0 and length 1, and the lengths they had."""
    values = images.flatten(1) - images.mean(dim=(1, 2))[:, None]
    length = values.norm(dim=1, keepdim=True).clamp_min(1e-6)
    return values / length, length


def _correlation(
    one: Float32[Tensor, "B s s"], other: Float32[Tensor, "B s s"]
) -> Float32[Tensor, " B"]:
    return (_normal(one)[0] * _normal(other)[0]).sum(dim=1)
