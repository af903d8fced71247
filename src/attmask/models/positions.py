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
