"""Images become the tokens that go into the first block."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attmask.mask import Grid
from attmask.models.architectures import AnyVit
from attmask.models.positions import Resize, resize_positions


def embed(
    vit: AnyVit,
    images: Float[Tensor, "B C height width"],
    grid: Grid,
    mask: Bool[Tensor, "B N"] | None,
    mask_token: Float[Tensor, "1 D"],
    positions: Resize,
) -> Float[Tensor, "B T D"]:
    """Patches to tokens, masked ones replaced before their position is added (equation 2).

    Rotary positions are not added here: the blocks turn queries and keys by them.
    """
    patches = vit.patch_embed.norm(vit.patch_embed.proj(images).flatten(2).transpose(1, 2))
    if mask is not None:
        patches = torch.where(mask[..., None], mask_token.to(patches.dtype), patches)
    prefix: list[Tensor] = [t for t in (vit.cls_token, vit.reg_token) if t is not None]
    first = torch.cat(prefix, dim=1).expand(
        images.shape[0], -1, -1
    )  # `len` would fix it in exports
    if vit.pos_embed is not None:
        placed = 0 if vit.no_embed_class else int(vit.num_prefix_tokens)
        rows, cols = vit.patch_embed.grid_size
        where = vit.pos_embed[:, placed:]
        patches = patches + resize_positions(where, (int(rows), int(cols)), grid, positions)
        first = first + vit.pos_embed[:, :placed] if placed else first
    x: Tensor = vit.norm_pre(torch.cat([first, patches], dim=1))
    return x
