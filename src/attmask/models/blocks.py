"""One pre-norm transformer block of timm, run so that only what is read is computed.

timm's own `Block.forward` computes all tokens and draws its drop path from the global generator.
Here the parts of the block are called in the same order with the drop path given from outside:
a branch that an image drops is not computed for it, and the last block can be asked for a few
tokens only.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from timm.layers import Attention
from timm.models.vision_transformer import Block
from torch import Tensor

from attmask.randomness import uniform

Branch = Callable[[Block, Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


def attention_branch(block: Block, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """What attention adds to the tokens."""
    attn, y = _attention_of(block), block.norm1(x)
    added: Tensor = block.ls1(_project(attn, attend(attn, y, y), y))
    return added


def mlp_branch(block: Block, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """What the MLP adds to the tokens."""
    added: Tensor = block.ls2(block.mlp(block.norm2(x)))
    return added


BRANCHES: tuple[Branch, Branch] = (attention_branch, mlp_branch)


def run_block(
    block: Block,
    x: Float[Tensor, "B T D"],
    keep: Float[Tensor, "2 B"] | None,
    branches: tuple[Branch, Branch] = BRANCHES,
) -> Float[Tensor, "B T D"]:
    """All tokens through one block.

    `keep` is 0 for an image that drops the branch, else the branch's one factor; it lies on the
    CPU, so that choosing images waits for no device.
    """
    for number, branch in enumerate(branches):
        x = x + branch(block, x) if keep is None else _add(branch, block, x, keep[number])
    return x


def _add(
    branch: Branch, block: Block, x: Float[Tensor, "B T D"], keep: Float[Tensor, "B"]
) -> Float[Tensor, "B T D"]:
    """Compute a branch for the images that keep it, and add it to these."""
    kept = keep.nonzero().flatten()
    if len(kept) == 0:
        return x
    factor = float(keep[kept[0]])  # the same for all of them: 1 / (1 - rate)
    if len(kept) == len(keep):
        added = branch(block, x)
        return x + (added if factor == 1 else factor * added)
    images = kept.to(x.device, non_blocking=True)
    added = branch(block, x[images])
    return x.index_add(0, images, added.to(x.dtype), alpha=factor)


@dataclass(frozen=True)
class Chosen:
    """The tokens to compute: first `[CLS]` of each image, then patches, image after image."""

    image: Int[Tensor, "M"]
    token: Int[Tensor, "M"]
    slot: Int[Tensor, "M"]  # its place among the queries of its image
    queries: Int[Tensor, "B Q"]  # the tokens of each image, filled up with [CLS] to a rectangle

    @classmethod
    def only_cls(cls, images: int, device: torch.device) -> "Chosen":
        """`[CLS]` alone."""
        image = torch.arange(images, device=device)
        none = torch.zeros_like(image)
        return cls(image, none, none, none[:, None])

    @classmethod
    def cls_and(cls, patches: Bool[Tensor, "B N"], prefix: int) -> "Chosen":
        """`[CLS]` and these patches, which come after `prefix` other tokens."""
        lone = cls.only_cls(len(patches), patches.device)
        image, patch = patches.nonzero(as_tuple=True)
        place = patches.cumsum(dim=1)
        slot, token = place[image, patch], patch + prefix
        queries = lone.queries.repeat(1, 1 + int(place[:, -1].max()))
        queries[image, slot] = token
        return cls(
            torch.cat([lone.image, image]),
            torch.cat([lone.token, token]),
            torch.cat([lone.slot, slot]),
            queries,
        )


def run_block_for(
    block: Block, x: Float[Tensor, "B T D"], keep: Float[Tensor, "2 B"] | None, chosen: Chosen
) -> Float[Tensor, "M D"]:
    """Only the chosen tokens through one block: all are keys and values, few are queries."""
    attn, y = _attention_of(block), block.norm1(x)
    queries = y.take_along_dim(chosen.queries[..., None], dim=1)
    mixed = attend(attn, queries, y)[chosen.image, chosen.slot]
    keep = None if keep is None else keep.to(x)[:, chosen.image]
    x, y = x[chosen.image, chosen.token], y[chosen.image, chosen.token]
    x = x + _kept(block.ls1(_project(attn, mixed, y)), keep, 0)
    return x + _kept(block.ls2(block.mlp(block.norm2(x))), keep, 1)


def attend(
    attn: Attention, queries: Float[Tensor, "B Q D"], tokens: Float[Tensor, "B T D"]
) -> Float[Tensor, "B Q A"]:
    """Multi-head attention of the queries over all tokens, before the output projection."""
    if queries is tokens:
        q, k, v = (_heads(part, attn) for part in attn.qkv(tokens).chunk(3, dim=-1))
    else:
        q = _heads(_part(attn, queries, slice(0, 1)), attn)
        k, v = (_heads(p, attn) for p in _part(attn, tokens, slice(1, 3)).chunk(2, dim=-1))
    q, k = attn.q_norm(q), attn.k_norm(k)
    if _fused_is_faster(q):
        mixed = F.scaled_dot_product_attention(q, k, v)
    else:
        mixed = (q * attn.scale @ k.transpose(-2, -1)).softmax(dim=-1).to(v.dtype) @ v
    return mixed.transpose(1, 2).flatten(2)


def cls_attention(block: Block, x: Float[Tensor, "B T D"], prefix: int) -> Float[Tensor, "B H N"]:
    """How much `[CLS]` attends to each patch in each head, from the block's input.

    One query row of the attention matrix, in full precision whatever the autocast: in bf16 many
    patches would tie. The softmax is over all tokens; the columns of `[CLS]` and of the registers
    are dropped afterwards, not renormalised.
    """
    attn = _attention_of(block)
    with torch.autocast(x.device.type, enabled=False):
        y = block.norm1(x.to(torch.promote_types(x.dtype, torch.float32)))
        q = attn.q_norm(_heads(_part(attn, y[:, :1], slice(0, 1)), attn))
        k = attn.k_norm(_heads(_part(attn, y, slice(1, 2)), attn))
        row: Tensor = (q * attn.scale @ k.transpose(-2, -1)).softmax(dim=-1)
    return row[:, :, 0, prefix:]


def drop_path(
    rates: Float[Tensor, "L"],
    *,
    seed: int,
    step: int,
    images: Int[Tensor, "B"],
    views: Int[Tensor, "B"],
) -> Float[Tensor, "L 2 B"]:
    """The factor of each residual branch (attention, MLP) of each block for each image."""
    block = torch.arange(len(rates))[:, None, None]
    branch = torch.arange(2)[:, None]
    lot = uniform("drop path", seed, step, images, views, block, branch)
    rates = rates.to(lot)[:, None, None]
    keep: Tensor = (lot >= rates) / (1 - rates)
    return keep


def _fused_is_faster(q: Tensor) -> bool:
    """Fused attention wins everywhere but on CPUs in bf16 (2026, torch 2.15: 35 against 22 ms)."""
    return q.device.type != "cpu" or q.dtype == torch.float32


def _attention_of(block: Block) -> Attention:
    assert isinstance(block.attn, Attention)
    return block.attn


def _part(attn: Attention, x: Tensor, part: slice) -> Tensor:
    """The rows q (0), k (1) or v (2) of the joint qkv projection."""
    rows = slice(part.start * attn.attn_dim, part.stop * attn.attn_dim)
    bias = None if attn.qkv.bias is None else attn.qkv.bias[rows]
    return F.linear(x, attn.qkv.weight[rows], bias)


def _heads(x: Tensor, attn: Attention) -> Tensor:
    split: Tensor = x.unflatten(-1, (attn.num_heads, attn.head_dim))
    return split.transpose(1, 2)


def _project(attn: Attention, mixed: Tensor, y: Tensor) -> Tensor:
    """The output side of attention: optional norm and gate, then the projection."""
    mixed = attn.norm(mixed)
    if attn.gate is not None:
        mixed = mixed * attn.gate(y).sigmoid()
    projected: Tensor = attn.proj(mixed)
    return projected


def _kept(branch: Tensor, keep: Tensor | None, which: int) -> Tensor:
    if keep is None:
        return branch
    factor = keep[which].to(branch.dtype)
    return branch * factor.view(-1, *(1,) * (branch.dim() - 1))
