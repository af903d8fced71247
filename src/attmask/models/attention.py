"""Multi-head attention with timm's modules, for some queries over all tokens."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from timm.layers import Attention, apply_rot_embed_cat
from timm.models.eva import EvaAttention
from torch import Tensor

AnyAttention = Attention | EvaAttention
"""The attention of a plain ViT, or of one with rotary positions."""

_PROJECTIONS = ("q_proj", "k_proj", "v_proj")
_QUERIES, _KEYS, _KEYS_AND_VALUES = slice(0, 1), slice(1, 2), slice(1, 3)


def attend(
    attn: AnyAttention,
    queries: Float[Tensor, "B Q D"],
    tokens: Float[Tensor, "B T D"],
    fused: bool | None = None,
    *,
    query_angles: Float[Tensor, "... Q R"] | None = None,
    token_angles: Float[Tensor, "T R"] | None = None,
) -> Float[Tensor, "B Q A"]:
    """Multi-head attention of the queries over all tokens, before the output projection.

    The angles are those of rotary positions, as timm has them: sines, then cosines.
    """
    if queries is tokens:
        q, k, v = (_heads(part, attn) for part in _all_parts(attn, tokens))
    else:
        (q,) = (_heads(part, attn) for part in _parts(attn, queries, _QUERIES))
        k, v = (_heads(part, attn) for part in _parts(attn, tokens, _KEYS_AND_VALUES))
    q = _turn(attn.q_norm(q), query_angles, attn, v.dtype)
    k = _turn(attn.k_norm(k), token_angles, attn, v.dtype)
    if _fused_is_faster(q) if fused is None else fused:
        mixed = F.scaled_dot_product_attention(q, k, v)
    else:
        mixed = (q * attn.scale @ k.transpose(-2, -1)).softmax(dim=-1).to(v.dtype) @ v
    return mixed.transpose(1, 2).flatten(2)


def first_row(
    attn: AnyAttention,
    tokens: Float[Tensor, "B T D"],
    token_angles: Float[Tensor, "T R"] | None = None,
) -> Float[Tensor, "B H T"]:
    """How much the first token attends to each token, in each head."""
    (q,) = _parts(attn, tokens[:, :1], _QUERIES)
    (k,) = _parts(attn, tokens, _KEYS)
    query_angles = None if token_angles is None else token_angles[:1]
    q = _turn(attn.q_norm(_heads(q, attn)), query_angles, attn, q.dtype)
    k = _turn(attn.k_norm(_heads(k, attn)), token_angles, attn, k.dtype)
    row: Tensor = (q * attn.scale @ k.transpose(-2, -1)).softmax(dim=-1)
    return row[:, :, 0]


def project(
    attn: AnyAttention, mixed: Float[Tensor, "*tokens A"], y: Float[Tensor, "*tokens D"]
) -> Float[Tensor, "*tokens D"]:
    """The output side of attention: optional norm and gate, then the projection."""
    mixed = attn.norm(mixed)
    if attn.gate is not None:
        mixed = mixed * attn.gate(y).sigmoid()
    projected: Tensor = attn.proj(mixed)
    return projected


def _all_parts(attn: AnyAttention, x: Tensor) -> tuple[Tensor, ...]:
    """Queries, keys and values of tokens, by a call of the projection where it is one layer."""
    if _has(attn, "q_proj") or _has(attn, "q_bias"):
        return _parts(attn, x, slice(0, 3))
    joint: Tensor = attn.qkv(x)
    return joint.chunk(3, dim=-1)


def _parts(attn: AnyAttention, x: Tensor, part: slice) -> tuple[Tensor, ...]:
    """Some of queries (0), keys (1) and values (2), by their rows of the joint projection."""
    if _has(attn, "q_proj"):
        return tuple(attn.get_submodule(name)(x) for name in _PROJECTIONS[part])
    width = attn.num_heads * attn.head_dim
    rows = slice(part.start * width, part.stop * width)
    bias = _bias(attn)
    joint = F.linear(x, attn.qkv.weight[rows], None if bias is None else bias[rows])
    return joint.chunk(part.stop - part.start, dim=-1)


def _bias(attn: AnyAttention) -> Tensor | None:
    if isinstance(attn, Attention):
        return attn.qkv.bias
    if not _has(attn, "q_bias"):
        return None
    return torch.cat([attn.q_bias, torch.zeros_like(attn.q_bias), attn.v_bias])  # none for keys


def _has(attn: AnyAttention, part: str) -> bool:
    """Whether an optional part is there; timm sets others to None."""
    return getattr(attn, part, None) is not None


def _heads(x: Tensor, attn: AnyAttention) -> Tensor:
    split: Tensor = x.unflatten(-1, (attn.num_heads, attn.head_dim))
    return split.transpose(1, 2)


def _turn(x: Tensor, angles: Tensor | None, attn: AnyAttention, dtype: torch.dtype) -> Tensor:
    """Rotate queries or keys (B H Q d) by the angles of their positions, as timm in float32."""
    if angles is None or isinstance(attn, Attention):
        return x
    turned: Tensor = apply_rot_embed_cat(x, angles, half=attn.rotate_half)
    return turned.to(dtype)


def _fused_is_faster(q: Tensor) -> bool:
    """Fused attention wins everywhere but on CPUs in bf16 (2026, torch 2.15: 35 against 22 ms)."""
    return q.device.type != "cpu" or q.dtype == torch.float32
