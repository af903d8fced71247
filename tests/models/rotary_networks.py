"""Small networks of timm's class Eva, with the rotary positions of DINOv3."""

from functools import partial
from typing import Any

import timm
import torch
from timm.layers import LayerNorm, RotaryEmbeddingDinoV3
from timm.models.eva import Eva, EvaBlock
from torch import Tensor, nn

NAMES = (
    "vit_small_patch16_dinov3",
    "vit_small_patch16_dinov3_qkvb",
    "vit_base_patch16_dinov3",
    "vit_base_patch16_dinov3_qkvb",
    "vit_small_plus_patch16_dinov3",
)
PARTS: dict[str, dict[str, Any]] = {
    "no registers": {"num_reg_tokens": 0},
    "no layer scale": {"init_values": None},
    "query and key norm": {"qk_norm": True},
    "three projections": {"qkv_fused": False, "qkv_bias": True},
    "norm before the projection": {"scale_attn_inner": True},
    "layer scale of attention alone": {"attn_only_layer_scale": True},
}
"""What timm's Eva may have beside what DINOv3 has."""
KINDS = (*NAMES, *PARTS)


def shaken(network: nn.Module) -> None:
    """Move weights far from their start, so that every one of them matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))


def eva(kind: str = NAMES[0], **settings: Any) -> Eva:
    """timm's own network, two blocks of width 48; the same weights every time."""
    torch.manual_seed(0)
    parts = {"embed_dim": 48, "depth": 2, "num_heads": 3, **PARTS.get(kind, {}), **settings}
    name = kind if kind in NAMES else NAMES[0]
    vit = timm.create_model(name, num_classes=0, **parts)
    assert isinstance(vit, Eva)
    shaken(vit)
    return vit.eval()


def small_eva(**settings: Any) -> Eva:
    """The smallest: patches of 8 pixels, width 24."""
    small = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 3, "num_heads": 3}
    return eva(**{**small, **settings})


def blocks_of(vit: Eva) -> list[EvaBlock]:
    """Its blocks, timm's or ours."""
    return [block for block in vit.blocks if isinstance(block, EvaBlock)]


def timms_angles(vit: Eva, rows: int, cols: int) -> Tensor:
    """The angles of the patches of a grid, as timm has them."""
    assert isinstance(vit.rope, RotaryEmbeddingDinoV3)
    return vit.rope.get_embed([rows, cols])


def other_eva(**parts: Any) -> Eva:
    """A network of timm's class Eva that is not a DINOv3."""
    usual: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 24,
        "depth": 1,
        "num_heads": 3,
        "num_classes": 0,
        "use_rot_pos_emb": True,
        "use_abs_pos_emb": False,
        "rope_type": "dinov3",
        "rope_rotate_half": True,
        "use_fc_norm": False,
        "norm_layer": partial(LayerNorm, eps=1e-5),
    }
    return Eva(**{**usual, **parts})
