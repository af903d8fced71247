"""A backbone with a linear classifier on top."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from attmask.evaluation.features.readout import Embedding
from attmask.finetuning.config import NetworkConfig
from attmask.models.backbone import Backbone
from attmask.models.layers import layers_of_backbone

INITIAL_STD = 0.02


class Classifier(nn.Module):
    """Images become logits of the classes, from `[CLS]`, the mean of the patches, or both."""

    def __init__(self, backbone: Backbone, classes: int, config: NetworkConfig) -> None:
        super().__init__()
        self.backbone = backbone
        self.readout = readout_of(config)
        # Nothing is masked; and what gets no gradient is not updated.
        backbone.mask_token.requires_grad_(False)
        self.head = nn.Linear(self.readout.width(backbone), classes)
        nn.init.trunc_normal_(self.head.weight, std=INITIAL_STD)
        nn.init.zeros_(self.head.bias)
        with torch.no_grad():
            self.head.weight.mul_(config.head_scale)

    def forward(
        self,
        images: Float[Tensor, "B C height width"],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
        *,
        frozen: bool = False,
    ) -> Float[Tensor, "B classes"]:
        """The logits; `keep` is the drop path, and a `frozen` backbone has gradients of zero."""
        if frozen:
            with torch.no_grad():
                vectors = self.readout(self.backbone, images)
            # Processes that share gradients wait for one of every parameter.
            trained = (p.flatten()[:1].sum() for p in self.backbone.parameters() if p.requires_grad)
            vectors = vectors + 0 * torch.stack(list(trained)).sum()
        elif self.readout.token == "cls":
            vectors = self.backbone.select(images, keep=keep).cls
        else:
            tokens = self.backbone.all_tokens(images, keep)
            parts = {"cls": tokens[:, 0], "gap": tokens[:, self.backbone.prefix :].mean(dim=1)}
            vectors = torch.cat([parts[name] for name in self.readout.token.split("+")], dim=1)
        logits: Tensor = self.head(vectors)
        return logits

    def prepare(self) -> None:
        """Compute nothing: an engine that hooks calls of the network prepares it at the first."""

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The layers as timm's layer decay wants them."""
        return layers_of_backbone()


def readout_of(config: NetworkConfig) -> Embedding:
    """The readout that evaluations use: the input of the classifier, without drop path."""
    return Embedding(token=config.token, norm_gap=True)
