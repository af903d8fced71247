"""timm's pre-norm transformer blocks, computed only for the tokens that are needed.

timm's own `forward` computes all tokens and draws its drop path from the global generator. Here
the drop path is given from outside, a branch that an image drops is not computed for it, and the
last block can be asked for a few tokens only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import timm.models.eva as timm_eva
import timm.models.vision_transformer as timm_vit
import torch
from jaxtyping import Float, Float64, Int, Int64
from timm.layers import Attention
from timm.models.eva import EvaAttention
from torch import Tensor, nn

from attmask.host import to_device
from attmask.mask import Mask
from attmask.models.attention import AnyAttention, attend, first_row, project
from attmask.models.rotary import angles_of_all
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


Adopted = TypeVar("Adopted", bound="PreNormBlock")


class PreNormBlock(nn.Module, ABC):
    """What the blocks of both kinds of timm's networks have in common.

    A subclass is one of timm's blocks as well. `adopt_` turns timm's own into it: it holds the
    same modules, and called as timm calls it, it computes the same.
    """

    attn: Any
    norm1: nn.Module
    norm2: nn.Module
    mlp: Any
    branches: "tuple[AttentionBranch, MlpBranch]"
    fused: bool | None = None
    """Whether attention is computed by a fused kernel; None: where that is faster."""

    @classmethod
    def adopt_(cls: "type[Adopted]", block: nn.Module) -> "Adopted":
        """Turn timm's block into this class, in place."""
        assert type(block) in cls.__mro__
        block.__class__ = cls
        assert isinstance(block, cls)
        assert type(block.attn) in (Attention, EvaAttention)
        block.branches = BRANCHES
        return block

    @property
    def attention(self) -> AnyAttention:
        """The attention module."""
        assert isinstance(self.attn, Attention | EvaAttention)
        return self.attn

    @abstractmethod
    def scale_attention(self, x: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """Layer scale of the attention branch, if there is one."""

    @abstractmethod
    def scale_mlp(self, x: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """Layer scale of the MLP branch, if there is one."""

    def compute(
        self,
        x: Float[Tensor, "B T D"],
        rope: Float[Tensor, "N R"] | None,
        keep: Float64[np.ndarray, "2 B"] | None,
        chosen: ChosenTokens | None,
    ) -> Float[Tensor, "*tokens D"]:
        """All tokens (B T D), or only the chosen ones (M D), after this block.

        `rope` has the angles of the patches, where positions are rotary. `keep` is 0 for an image
        that drops the branch, else the branch's one factor. It is on the host, so that choosing
        images waits for no device.
        """
        angles = None if rope is None else angles_of_all(rope, x.shape[1])
        if chosen is not None:
            return self._only(x, angles, keep, chosen)
        attention, mlp = self.branches
        for number, branch in enumerate((partial(attention, self, angles), partial(mlp, self))):
            x = x + branch(x) if keep is None else _add(branch, x, keep[number])
        return x

    def _only(
        self,
        x: Float[Tensor, "B T D"],
        angles: Float[Tensor, "T R"] | None,
        keep: Float64[np.ndarray, "2 B"] | None,
        chosen: ChosenTokens,
    ) -> Float[Tensor, "M D"]:
        """Compute the chosen tokens only, which attend to all tokens."""
        attn, y = self.attention, self.norm1(x)
        queries = y.take_along_dim(chosen.queries[..., None], dim=1)
        mixed = attend(
            attn,
            queries,
            y,
            self.fused,
            query_angles=None if angles is None else angles[chosen.queries][:, None],
            token_angles=angles,
        )[chosen.image, chosen.slot]
        factor = None if keep is None else to_device(keep, x.device).to(x.dtype)[:, chosen.image]
        x, y = x[chosen.image, chosen.token], y[chosen.image, chosen.token]
        x = x + _scaled(self.scale_attention(project(attn, mixed, y)), factor, 0)
        return x + _scaled(self.scale_mlp(self.mlp(self.norm2(x))), factor, 1)

    def cls_attention(
        self, x: Float[Tensor, "B T D"], prefix: int, rope: Float[Tensor, "N R"] | None = None
    ) -> Float[Tensor, "B H N"]:
        """How much `[CLS]` attends to each patch in each head, from the block's input.

        One query row of the attention matrix, in full precision whatever the autocast: in bf16
        many patches would tie. The softmax is over all tokens; the columns of `[CLS]` and of the
        registers are dropped afterwards, not renormalised.
        """
        with torch.autocast(x.device.type, enabled=False):
            y = self.norm1(x.to(torch.promote_types(x.dtype, torch.float32)))
            angles = None if rope is None else angles_of_all(rope, x.shape[1])
            row = first_row(self.attention, y, angles)
        return row[:, :, prefix:]


class Block(PreNormBlock, timm_vit.Block):
    """The block of timm's plain ViT under timm's names."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        rope: None = None,
        keep: Float64[np.ndarray, "2 B"] | None = None,
        chosen: ChosenTokens | None = None,
    ) -> Float[Tensor, "*tokens D"]:
        """`compute`; with an attention mask, which timm may pass, as timm's own block."""
        if attn_mask is not None or is_causal:
            return timm_vit.Block.forward(self, x, attn_mask, is_causal)
        return self.compute(x, rope, keep, chosen)

    def scale_attention(self, x: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """Layer scale of the attention branch, if there is one."""
        scaled: Tensor = self.ls1(x)
        return scaled

    def scale_mlp(self, x: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """Layer scale of the MLP branch, if there is one."""
        scaled: Tensor = self.ls2(x)
        return scaled


class RotaryBlock(PreNormBlock, timm_eva.EvaBlock):
    """The block of timm's `Eva` with rotary positions under timm's names."""

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        rope: Float[Tensor, "N R"] | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        *,
        keep: Float64[np.ndarray, "2 B"] | None = None,
        chosen: ChosenTokens | None = None,
    ) -> Float[Tensor, "*tokens D"]:
        """`compute`; with an attention mask, which timm may pass, as timm's own block."""
        if attn_mask is not None or is_causal:
            return timm_eva.EvaBlock.forward(self, x, rope, attn_mask, is_causal)
        return self.compute(x, rope, keep, chosen)

    def scale_attention(self, x: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """Layer scale of the attention branch, if there is one."""
        return x if self.gamma_1 is None else self.gamma_1 * x

    def scale_mlp(self, x: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """Layer scale of the MLP branch, if there is one."""
        return x if self.gamma_2 is None else self.gamma_2 * x


AttentionBranch = Callable[
    [PreNormBlock, Float[Tensor, "T R"] | None, Float[Tensor, "B T D"]], Float[Tensor, "B T D"]
]
MlpBranch = Callable[[PreNormBlock, Float[Tensor, "B T D"]], Float[Tensor, "B T D"]]


def attention_branch(
    block: PreNormBlock, angles: Float[Tensor, "T R"] | None, x: Float[Tensor, "B T D"]
) -> Float[Tensor, "B T D"]:
    """The output of the attention branch."""
    attn, y = block.attention, block.norm1(x)
    mixed = attend(attn, y, y, block.fused, query_angles=angles, token_angles=angles)
    return block.scale_attention(project(attn, mixed, y))


def mlp_branch(block: PreNormBlock, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
    """The output of the MLP branch."""
    return block.scale_mlp(block.mlp(block.norm2(x)))


BRANCHES: tuple[AttentionBranch, MlpBranch] = (attention_branch, mlp_branch)


def _add(
    branch: Callable[[Tensor], Tensor],
    x: Float[Tensor, "B T D"],
    keep: Float64[np.ndarray, " B"],
) -> Float[Tensor, "B T D"]:
    """Compute a branch for the images that keep it, and add it to these.

    Where no image does, it is computed for none: its weights then have a gradient of zero, not
    none, as they have where another process or micro-batch keeps it.
    """
    kept = keep.nonzero()[0]
    factor = float(keep.max(initial=0))  # the same for all that keep it: 1 / (1 - rate)
    if len(kept) == len(keep):
        added = branch(x)
        return x + (added if factor == 1 else factor * added)
    images = to_device(kept, x.device)
    added = branch(x[images])
    return x.index_add(0, images, added.to(x.dtype), alpha=factor)


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


def _scaled(branch: Tensor, factor: Tensor | None, number: int) -> Tensor:
    return branch if factor is None else branch * factor[number][:, None].to(branch.dtype)
