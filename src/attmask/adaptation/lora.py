"""LoRA: updates of low rank beside frozen weights (Hu et al., 2021).

A weight W becomes W + (alpha / rank) B A, where A and B are trained and W is not. B starts at zero,
so the network starts as it is. timm's layers stay what they are, and only their weight is computed;
so whatever reads `linear.weight` reads the sum.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from attmask.adaptation.config import AdaptConfig
from attmask.models.backbone import Backbone

_ORIGINAL = ".parametrizations.weight.original"
_UPDATE = ".parametrizations.weight.0."
ATTENTION = ("attn.qkv", "attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.proj")
MLP = ("mlp.fc1", "mlp.fc1_g", "mlp.fc1_x", "mlp.fc2")
"""Names in timm; a block has those of its kind: one projection or three, a plain MLP or SwiGLU."""


class LowRankUpdate(nn.Module):
    """The sum of a weight and its update."""

    scale: Tensor

    def __init__(self, weight: Float[Tensor, "out into"], rank: int, alpha: float) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.a = nn.Parameter(torch.empty(rank, columns))
        self.b = nn.Parameter(torch.zeros(rows, rank))
        nn.init.normal_(self.a, std=1 / math.sqrt(columns))
        # With the weights, so that a checkpoint can be merged without its settings.
        self.register_buffer("scale", torch.tensor(alpha / rank))

    def forward(self, weight: Float[Tensor, "out into"]) -> Float[Tensor, "out into"]:
        """The weight with its update."""
        return weight + merged_update(self.a, self.b, self.scale)


def merged_update(
    a: Float[Tensor, "rank into"], b: Float[Tensor, "out rank"], scale: Float[Tensor, ""]
) -> Float[Tensor, "out into"]:
    """What is added to a weight."""
    update: Tensor = scale * (b @ a)
    return update


def add_updates_(backbone: Backbone, config: AdaptConfig, blocks: Sequence[nn.Module]) -> None:
    """Give the weights of these blocks an update each; nothing else of the backbone is trained.

    The mask token is trained all the same: it is new, and no image without a mask sees it.
    """
    assert config.lora_rank is not None
    backbone.requires_grad_(False)
    backbone.mask_token.requires_grad_(True)
    for block in blocks:
        there = dict(block.named_modules())
        for name in ATTENTION + (MLP if config.lora_mlp else ()):
            linear = there.get(name)
            if not isinstance(linear, nn.Linear):
                continue
            update = LowRankUpdate(linear.weight, config.lora_rank, config.lora_alpha)
            # Not by a trial: building on the meta device has no values.
            parametrize.register_parametrization(linear, "weight", update, unsafe=True)


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights without updates: each is added to its weight; others stay as they are."""
    plain: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        owner, found, _ = name.partition(_ORIGINAL)
        if found and f"{owner}{_UPDATE}a" in weights:
            a, b, scale = (weights[f"{owner}{_UPDATE}{part}"] for part in ("a", "b", "scale"))
            plain[f"{owner}.weight"] = tensor + merged_update(a, b, scale)
        elif not (_UPDATE in name and f"{name.partition(_UPDATE)[0]}{_ORIGINAL}" in weights):
            plain[name] = tensor
    return plain
