"""The `[CLS]` attention of timm's vision transformers."""

from collections.abc import Mapping, Sequence
from typing import Any

import timm.models.beit as timm_beit
import timm.models.eva as timm_eva
import torch
from jaxtyping import Float
from timm.layers import Attention, AttentionRope, apply_rot_embed_cat
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from attmask.attention.network import (
    Network,
    apply,
    apply_third,
    at_least_fp32,
    cls_logits,
    split_heads,
)
from attmask.errors import UserError

KINDS = (VisionTransformer, timm_eva.Eva, timm_beit.Beit)
"""Plain ViTs (DeiT with its distillation token too), rotary positions, relative positions."""

_ATTENTIONS = (Attention, AttentionRope, timm_eva.EvaAttention, timm_beit.Attention)


def read_timm(module: nn.Module) -> Network | None:
    """A vision transformer of timm; None if the module is something else."""
    if not isinstance(module, KINDS):
        return None
    vit: Any = module
    name = type(module).__name__
    if vit.cls_token is None:
        raise UserError(f"this {name} has no [CLS] token, so no [CLS] attention; choose another")
    if module.training and getattr(getattr(vit, "patch_drop", None), "prob", 0) > 0:
        raise UserError(f"this {name} drops patches while it trains; call its eval() first")
    attentions: list[Any] = [getattr(block, "attn", None) for block in vit.blocks]
    for attention in attentions:
        if type(attention) not in _ATTENTIONS:
            raise UserError(
                f"this {name} computes attention with {type(attention).__name__}, which cannot be "
                "read; choose a network whose blocks have timm's plain attention"
            )
    return Network(attentions, int(vit.num_prefix_tokens), _logits)


def _logits(
    attention: Any, given: Sequence[Any], named: Mapping[str, Any]
) -> Float[Tensor, "B H T"]:
    if named.get("attn_mask") is not None or named.get("is_causal"):
        raise UserError("[CLS] attention under an attention mask cannot be read; pass no attn_mask")
    x = at_least_fp32(given[0])
    q, k = _projections(attention, x)
    q = split_heads(q, attention.num_heads)
    k = split_heads(k, getattr(attention, "num_kv_heads", attention.num_heads))
    if not isinstance(attention, timm_beit.Attention):
        q, k = apply(attention.q_norm, q), apply(attention.k_norm, k)
    rope = named.get("rope")
    if rope is not None:  # of the patches alone, so the query of [CLS] stays as it is
        first, patches = k.tensor_split([attention.num_prefix_tokens], dim=2)
        turned = apply_rot_embed_cat(patches, at_least_fp32(rope), half=attention.rotate_half)
        k = torch.cat([first, turned], dim=2)
    if k.shape[1] < q.shape[1]:  # grouped queries: several heads share the keys of one
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    logits = cls_logits(q, k, attention.scale)
    if isinstance(attention, timm_beit.Attention):
        logits = logits + _relative_positions(attention, named.get("shared_rel_pos_bias"))
    return logits


def _projections(attention: Any, x: Float[Tensor, "B T D"]) -> tuple[Tensor, Tensor]:
    """The query of `[CLS]` and the keys of all tokens."""
    cls = x[:, :1]
    if attention.qkv is None:
        return apply(attention.q_proj, cls), apply(attention.k_proj, x)
    q, k = apply_third(attention.qkv, cls, 0), apply_third(attention.qkv, x, 1)
    if getattr(attention, "q_bias", None) is not None:  # EVA and BEiT keep it beside the projection
        q, k = q + attention.q_bias.to(q.dtype), k + attention.k_bias.to(k.dtype)
    return q, k


def _relative_positions(attention: Any, shared: Tensor | None) -> Tensor | float:
    """BEiT's bias of `[CLS]` towards each token, in each head."""
    bias: Tensor | float = 0.0
    if attention.relative_position_bias_table is not None:
        table = attention.relative_position_bias_table
        bias = bias + at_least_fp32(table[attention.relative_position_index[0]].T)
    if shared is not None:
        bias = bias + at_least_fp32(shared[..., 0, :])
    return bias
