"""The `[CLS]` attention of Hugging Face's vision transformers; transformers is not imported."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
from timm.layers import apply_rot_embed_cat
from torch import Tensor, nn

from attmask.attention.network import Network, apply, at_least_fp32, cls_logits, split_heads
from attmask.errors import UserError

KINDS = {
    "vit": 1,
    "deit": 2,  # [CLS] and the distillation token
    "vit_msn": 1,
    "dinov2": 1,
    "dinov2_with_registers": 1,
    "dinov3_vit": 1,
}
"""Kinds of model, as `config.model_type` names them, and their tokens before the registers."""


def read_huggingface(module: nn.Module) -> Network | None:
    """A vision transformer of transformers, with any head; None if the module is something else."""
    config: Any = getattr(module, "config", None)
    kind = getattr(config, "model_type", None)
    if kind not in KINDS:
        return None
    attentions = [part for part in module.modules() if _query_and_key(part)]
    if not attentions:
        return None  # a part of a network, which has the network's config
    return Network(attentions, KINDS[kind] + getattr(config, "num_register_tokens", 0), _logits)


def _query_and_key(part: nn.Module) -> tuple[nn.Module, nn.Module] | None:
    """The two projections of an attention module; transformers 4 has other names."""
    for query, key in (("q_proj", "k_proj"), ("query", "key")):
        found = getattr(part, query, None), getattr(part, key, None)
        if isinstance(found[0], nn.Module) and isinstance(found[1], nn.Module):
            return found[0], found[1]
    return None


def _logits(
    attention: Any, given: Sequence[Any], named: Mapping[str, Any]
) -> Float[Tensor, "B H T"]:
    if any(isinstance(value, Tensor) for value in (*given[1:2], named.get("attention_mask"))):
        raise UserError("[CLS] attention under an attention mask cannot be read; pass no mask")
    x = at_least_fp32(given[0] if given else named["hidden_states"])
    projections = _query_and_key(attention)
    assert projections is not None
    count = _heads(attention)
    q = split_heads(apply(projections[0], x[:, :1]), count)
    k = split_heads(apply(projections[1], x), count)
    positions = named.get("position_embeddings")
    if positions is not None:  # rotary; of the patches alone, so the query of [CLS] stays as it is
        cos, sin = positions
        first, patches = k.tensor_split([k.shape[2] - sin.shape[-2]], dim=2)
        angles = at_least_fp32(torch.cat([sin, cos], dim=-1))
        k = torch.cat([first, apply_rot_embed_cat(patches, angles, half=True)], dim=2)
    return cls_logits(q, k, k.shape[-1] ** -0.5)


def _heads(attention: Any) -> int:
    return int(getattr(attention, "num_attention_heads", None) or attention.num_heads)
