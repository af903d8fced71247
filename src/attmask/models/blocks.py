"""timm's pre-norm transformer block, computed only for the tokens that are needed.

timm's own `Block.forward` computes all tokens and draws its drop path from the global generator.
Here the drop path is given from outside, a branch that an image drops is not computed for it, and
the last block can be asked for a few tokens only.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import timm.models.vision_transformer as timm_vit
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int, Int64
from timm.layers import Attention
from torch import Tensor, nn

from attmask.host import to_device
from attmask.mask import Mask
from attmask.randomness import uniform


class ChosenTokens(NamedTuple):
    """The tokens to compute: first `[CLS]` of each image, then patches, image after image."""

    image: Int[Tensor, "M"]
    token: Int[Tensor, "M"]
    slot: Int[Tensor, "M"]  # its place among the queries of its image
    queries: Int[Tensor, "B Q"]  # the tokens of each image, filled up with [CLS] to a rectangle

    @classmethod
    def only_cls(cls, images: int, device: torch.device) -> "ChosenTokens":
        """`[CLS]` alone."""
        image = torch.arange(images, device=device)
        none = torch.zeros_like(image)
        return cls(image, none, none, none[:, None])

    @classmethod
    def cls_and(cls, patches: Mask, prefix: int) -> "ChosenTokens":
        """`[CLS]` and the patches of a mask, which come after `prefix` other tokens."""
        device = patches.hidden.device
        lone, places = cls.only_cls(len(patches), device), patches.places
        most = int(patches.counts.max(initial=0))
        is_wanted = np.arange(most) < patches.counts[:, None]
        wanted = (patches.order[:, :most] + prefix) * to_device(is_wanted, device)
        return cls(
            torch.cat([lone.image, places.image]),
            torch.cat([lone.token, places.patch + prefix]),
            torch.cat([lone.slot, places.slot + 1]),
            torch.cat([lone.queries, wanted], dim=1),
        )


class Block(timm_vit.Block):
    """timm's block under timm's names, whose drop path and tokens are given from outside.

    `Block.adopt_` turns timm's own blocks into these: they hold the same modules, and called with
    tokens alone they compute the same.
    """

    branches: "tuple[Branch, Branch]"
    fused: bool | None = None
    """Whether attention is computed by a fused kernel; None: where that is faster."""

    @classmethod
    def adopt_(cls, block: nn.Module) -> "Block":
        """Turn timm's block into this class, in place."""
        assert type(block) in (timm_vit.Block, cls)
        assert type(block.attn) is Attention
        block.__class__ = cls
        assert isinstance(block, cls)
        block.branches = BRANCHES
        return block

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        keep: Float64[np.ndarray, "2 B"] | None = None,
        chosen: ChosenTokens | None = None,
    ) -> Float[Tensor, "*tokens D"]:
        """All tokens (B T D), or only the chosen ones (M D), after this block.

        `keep` is 0 for an image that drops the branch, else the branch's one factor. It is on the
        host, so that choosing images waits for no device. With an attention mask, which timm may
        pass, the block computes as timm's.
        """
        if attn_mask is not None or is_causal:
            return super().forward(x, attn_mask, is_causal)
        if chosen is not None:
            return self._only(x, keep, chosen)
        for number, branch in enumerate(self.branches):
            x = x + branch(self, x) if keep is None else _add(branch, self, x, keep[number])
        return x

    def _only(
        self,
        x: Float[Tensor, "B T D"],
        keep: Float64[np.ndarray, "2 B"] | None,
        chosen: ChosenTokens,
    ) -> Float[Tensor, "M D"]:
        """Compute the chosen tokens only, which attend to all tokens."""
        attn, y = self.attn, self.norm1(x)
        assert isinstance(attn, Attention)
        queries = y.take_along_dim(chosen.queries[..., None], dim=1)
        mixed = attend(attn, queries, y, self.fused)[chosen.image, chosen.slot]
        factor = None if keep is None else to_device(keep, x.device).to(x.dtype)[:, chosen.image]
        x, y = x[chosen.image, chosen.token], y[chosen.image, chosen.token]
        x = x + _scaled(self.ls1(_project(attn, mixed, y)), factor, 0)
        return x + _scaled(self.ls2(self.mlp(self.norm2(x))), factor, 1)

    def cls_attention(self, x: Float[Tensor, "B T D"], prefix: int) -> Float[Tensor, "B H N"]:
        """How much `[CLS]` attends to each patch in each head, from the block's input.

        One query row of the attention matrix, in full precision whatever the autocast: in bf16
        many patches would tie. The softmax is over all tokens; the columns of `[CLS]` and of the
        registers are dropped afterwards, not renormalised.
        """
        attn = self.attn
        assert isinstance(attn, Attention)
        with torch.autocast(x.device.type, enabled=False):
            y = self.norm1(x.to(torch.promote_types(x.dtype, torch.float32)))
            q = attn.q_norm(_heads(_part(attn, y[:, :1], slice(0, 1)), attn))
            k = attn.k_norm(_heads(_part(attn, y, slice(1, 2)), attn))
            row: Tensor = (q * attn.scale @ k.transpose(-2, -1)).softmax(dim=-1)
        return row[:, :, 0, prefix:]


Branch = Callable[[Block, Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


def attention_branch(block: Block, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """The output of the attention branch."""
    attn, y = block.attn, block.norm1(x)
    assert isinstance(attn, Attention)
    added: Tensor = block.ls1(_project(attn, attend(attn, y, y, block.fused), y))
    return added


def mlp_branch(block: Block, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """The output of the MLP branch."""
    added: Tensor = block.ls2(block.mlp(block.norm2(x)))
    return added


BRANCHES: tuple[Branch, Branch] = (attention_branch, mlp_branch)


def _add(
    branch: Branch, block: Block, x: Float[Tensor, "B T D"], keep: Float64[np.ndarray, " B"]
) -> Float[Tensor, "B T D"]:
    """Compute a branch for the images that keep it, and add it to these.

    Where no image does, it is computed for none: its weights then have a gradient of zero, not
    none, as they have where another process or micro-batch keeps it.
    """
    kept = keep.nonzero()[0]
    factor = float(keep.max(initial=0))  # the same for all that keep it: 1 / (1 - rate)
    if len(kept) == len(keep):
        added = branch(block, x)
        return x + (added if factor == 1 else factor * added)
    images = to_device(kept, x.device)
    added = branch(block, x[images])
    return x.index_add(0, images, added.to(x.dtype), alpha=factor)


def attend(
    attn: Attention,
    queries: Float[Tensor, "B Q D"],
    tokens: Float[Tensor, "B T D"],
    fused: bool | None = None,
) -> Float[Tensor, "B Q A"]:
    """Multi-head attention of the queries over all tokens, before the output projection."""
    if queries is tokens:
        q, k, v = (_heads(part, attn) for part in attn.qkv(tokens).chunk(3, dim=-1))
    else:
        q = _heads(_part(attn, queries, slice(0, 1)), attn)
        k, v = (_heads(p, attn) for p in _part(attn, tokens, slice(1, 3)).chunk(2, dim=-1))
    q, k = attn.q_norm(q), attn.k_norm(k)
    if _fused_is_faster(q) if fused is None else fused:
        mixed = F.scaled_dot_product_attention(q, k, v)
    else:
        mixed = (q * attn.scale @ k.transpose(-2, -1)).softmax(dim=-1).to(v.dtype) @ v
    return mixed.transpose(1, 2).flatten(2)


def drop_path(
    rates: Float64[np.ndarray, " L"],
    *,
    seed: int,
    step: int,
    images: Int64[np.ndarray, " B"],
    views: Int64[np.ndarray, " B"],
) -> Float64[np.ndarray, "L 2 B"]:
    """The factor of each residual branch (attention, MLP) of each block for each image."""
    block = np.arange(len(rates))[:, None, None]
    branch = np.arange(2)[:, None]
    lot = uniform("drop path", seed, step, images, views, block, branch)
    rate = rates[:, None, None]
    return np.asarray((lot >= rate) / (1 - rate))


def _fused_is_faster(q: Tensor) -> bool:
    """Fused attention wins everywhere but on CPUs in bf16 (2026, torch 2.15: 35 against 22 ms)."""
    return q.device.type != "cpu" or q.dtype == torch.float32


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


def _scaled(branch: Tensor, factor: Tensor | None, number: int) -> Tensor:
    return branch if factor is None else branch * factor[number][:, None].to(branch.dtype)
