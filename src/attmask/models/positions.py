"""Resize position embeddings to another grid."""

from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from attmask.mask import Grid

Resize = Literal["size", "reference", "no-antialias"]


def resize_positions(
    positions: Float[Tensor, "1 N_old D"], old: Grid, new: Grid, how: Resize
) -> Float[Tensor, "1 N_new D"]:
    """Bicubic: to the size itself, with antialiasing or without, or as the reference does it.

    The reference (DINO, iBOT and their descendants) scales by (size + 0.1) / old size, which
    samples slightly shifted positions; networks trained that way expect it. timm antialiases;
    most networks of transformers do not.
    """
    if any(isinstance(side, torch.SymInt) for side in new):
        return _resized_when_run(positions, old, new, how)
    if old == new:
        return positions
    width = positions.shape[-1]
    image = positions.reshape(1, *old, width).permute(0, 3, 1, 2)
    image = image.to(torch.promote_types(image.dtype, torch.float32))
    if how != "reference":
        image = F.interpolate(image, size=new, mode="bicubic", antialias=how == "size")
    else:
        scale = [(n + 0.1) / o for n, o in zip(new, old, strict=True)]
        image = F.interpolate(image, scale_factor=scale, mode="bicubic")
    return image.permute(0, 2, 3, 1).reshape(1, -1, width).to(positions.dtype)


def _resized_when_run(
    positions: Float[Tensor, "1 N_old D"], old: Grid, new: Grid, how: Resize
) -> Float[Tensor, "1 N_new D"]:
    """The same as products with two matrices, for an exported program whose grid is not known yet.

    A row of a matrix has the weights of the old rows (columns) in a new one. Exporters translate
    matrices faithfully, while bicubic resizing differs between runtimes.
    """
    device, dtype = positions.device, torch.promote_types(positions.dtype, torch.float32)
    sides = [torch.full((), side, device=device, dtype=dtype) for side in new]
    if how == "reference":
        is_same = (sides[0] == old[0]) & (sides[1] == old[1])
        sides = [torch.where(is_same, side, side + 0.1) for side in sides]
    scales = [o / side for o, side in zip(old, sides, strict=True)]
    weights = _antialiased if how == "size" else _interpolated
    down, across = (weights(o, n, s) for o, n, s in zip(old, new, scales, strict=True))
    image = positions.reshape(*old, -1).to(down.dtype)
    resized = torch.einsum("no,mp,opd->nmd", down, across, image)
    return resized.flatten(0, 1)[None].to(positions.dtype)


def _antialiased(old: int, new: int, scale: Tensor) -> Float[Tensor, "new old"]:
    """Weights of `interpolate(size=new, mode="bicubic", antialias=True)` along one side."""
    centre = scale * (torch.arange(new, device=scale.device, dtype=scale.dtype) + 0.5)
    places = torch.arange(old, device=scale.device, dtype=scale.dtype) + 0.5
    distance = (places[None, :] - centre[:, None]) / scale.clamp(min=1)
    weights = _cubic(distance.abs(), -0.5)
    return weights / weights.sum(dim=1, keepdim=True)


def _interpolated(old: int, new: int, scale: Tensor) -> Float[Tensor, "new old"]:
    """Weights of `interpolate(mode="bicubic")` along one side; a step is `scale` old ones."""
    place = scale * (torch.arange(new, device=scale.device, dtype=scale.dtype) + 0.5) - 0.5
    first = place.floor()
    olds = torch.arange(old, device=scale.device, dtype=scale.dtype)
    weights = torch.zeros_like(place)[:, None] * olds
    for tap in (-1, 0, 1, 2):  # beyond the edge, the outermost row counts again
        index = (first + tap).clamp(0, old - 1)
        weight = _cubic((first + tap - place).abs(), -0.75)
        weights = weights + weight[:, None] * (index[:, None] == olds[None, :])
    return weights


def _cubic(distance: Tensor, a: float) -> Tensor:
    """The cubic convolution kernel of Keys, for distances that are not negative."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return torch.where(distance < 1, near, torch.where(distance < 2, far, 0.0))
