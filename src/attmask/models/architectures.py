"""Which of timm's networks a backbone can be, and why another cannot."""

import timm.models.eva as timm_eva
import timm.models.vision_transformer as timm_vit
from timm.layers import Attention, PatchEmbed, RotaryEmbeddingDinoV3
from timm.models import is_model_in_modules
from timm.models.eva import Eva, EvaAttention
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from attmask.errors import UserError
from attmask.models.blocks import Block, RotaryBlock
from attmask.models.rotary import prepare_

AnyVit = VisionTransformer | Eva
"""timm's plain ViT, or its ViT with the rotary positions of DINOv3."""

ADVICE = "use one of timm's vit_* or deit_* networks, e.g. vit_small_patch16_224 or _dinov3"


def is_rotary(name: str) -> bool:
    """Whether a name of timm stands for its class with rotary positions."""
    return bool(is_model_in_modules(name, {"eva"}))


def supported(network: nn.Module) -> AnyVit:
    """The network, or an error unless it is a pre-norm ViT that `blocks.py` can compute."""
    if type(network) is Eva:
        why = _why_not_rotary(network)
        if why:
            raise UserError(f"this network of timm's class Eva has {why}; {ADVICE}")
        heads = {attn.num_heads for attn in network.modules() if isinstance(attn, EvaAttention)}
        if any(network.embed_dim % (4 * count) for count in heads):
            raise UserError(
                f"width {network.embed_dim} is not a multiple of 4 times {max(heads)} heads, as "
                "rotary positions need; change width or heads"
            )
        return network
    plain = (
        type(network) is VisionTransformer  # a distilled one has one token more
        and network.cls_token is not None
        and type(network.patch_embed) is PatchEmbed
        and all(type(b) in (timm_vit.Block, Block) for b in network.blocks)
        and all(type(b.attn) is Attention for b in network.blocks)
    )
    if not plain:
        raise UserError(
            f"{type(network).__name__} is not a plain vision transformer with a class token; "
            f"{ADVICE}"
        )
    assert isinstance(network, VisionTransformer)
    return network


def adopt_blocks_(vit: AnyVit) -> None:
    """Turn timm's blocks into ours, in place."""
    if isinstance(vit, Eva):
        prepare_(vit)
    for block in vit.blocks:
        (RotaryBlock if isinstance(vit, Eva) else Block).adopt_(block)


def _why_not_rotary(vit: Eva) -> str | None:
    """What a network of timm's class `Eva` has that those of DINOv3 have not, if anything."""
    rope, blocks = vit.rope, list(vit.blocks)
    if type(rope) is not RotaryEmbeddingDinoV3 or not rope.rotate_half or rope.grid_offset:
        return "other positions than the rotary ones of DINOv3"
    if rope.normalize_coords != "separate":
        return "rotary positions that depend on the sides of the image together"
    if vit.pos_embed is not None:
        return "position embeddings beside its rotary positions"
    if vit.cls_token is None:
        return "no class token"
    if not all(type(b) in (timm_eva.EvaBlock, RotaryBlock) for b in blocks):
        return "a norm after its branches instead of before them"
    if not all(type(b.attn) is EvaAttention and b.attn.rotate_half for b in blocks):
        return "another kind of attention"
    if type(vit.patch_embed) is not PatchEmbed or getattr(vit, "patch_drop", None) is not None:
        return "another patch embedding, or drops patches by itself"
    if isinstance(vit.get_submodule("norm"), nn.Identity):
        return "no final norm"
    return None
