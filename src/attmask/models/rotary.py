"""Rotary positions (DINOv3): every patch turns its queries and keys by angles of its place."""

import math

import torch
from jaxtyping import Float
from timm.layers import RotaryEmbeddingDinoV3
from timm.models.eva import Eva
from torch import Tensor, nn

from attmask.mask import Grid


def angles_of(vit: nn.Module, grid: Grid, device: torch.device) -> Float[Tensor, "N R"] | None:
    """Sines, then cosines of the angles of each patch of a grid, in timm's layout.

    None if the network has no rotary positions.

    Both coordinates of a patch run from -1 to 1 over the image, whatever its size. timm makes them
    on the host, and the copy would wait for the device in every step; it also fixes the size of
    the images in an export.
    """
    rope = vit.rope if isinstance(vit, Eva) else None
    if not isinstance(rope, RotaryEmbeddingDinoV3):
        return None
    rows, cols = (_centres(patches, device) for patches in grid)
    coordinates = torch.stack(torch.meshgrid(rows, cols, indexing="ij"), dim=-1).flatten(0, 1)
    periods = rope.get_buffer("periods").to(device)
    angles = (2 * math.pi * coordinates.to(periods.dtype)[..., None] / periods).flatten(1).tile(2)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def _centres(patches: int, device: torch.device) -> Float[Tensor, " patches"]:
    """The coordinates of the centres of patches along one side."""
    return (torch.arange(patches, device=device, dtype=torch.float32) + 0.5) / patches * 2 - 1


def angles_of_all(rope: Float[Tensor, "N R"], tokens: int) -> Float[Tensor, "T R"]:
    """The angles of all tokens: `[CLS]` and registers, which have no place, are not turned."""
    prefix, width = tokens - rope.shape[0], rope.shape[1] // 2
    still = torch.cat([rope.new_zeros(prefix, width), rope.new_ones(prefix, width)], dim=-1)
    return torch.cat([still, rope])


def prepare_(vit: Eva) -> None:
    """Turn off random changes of positions, and give a value to tensors that no file holds.

    A network that was built without values, on PyTorch's meta device, gets its weights from a
    file; the periods of the angles and the zero bias of keys are in none.
    """
    rope = vit.rope
    assert isinstance(rope, RotaryEmbeddingDinoV3)
    rope.shift_coords = rope.jitter_coords = rope.rescale_coords = None
    rope.aug_active = False
    for module in vit.modules():
        lost = {name: b for name, b in module.named_buffers(recurse=False) if b.is_meta}
        for name, buffer in lost.items():
            module.register_buffer(
                name, torch.empty(buffer.shape, dtype=buffer.dtype, device="cpu"), persistent=False
            )
        fill = getattr(module, "init_non_persistent_buffers", None)
        if lost and fill is not None:
            fill()
