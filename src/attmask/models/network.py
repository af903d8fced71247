"""A network that is trained: backbone and heads."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attmask.models.backbone import Backbone
from attmask.models.heads import Head, HeadConfig


class Network(nn.Module):
    """A backbone with a head for `[CLS]` and one for patches, by default the same."""

    def __init__(self, backbone: Backbone, config: HeadConfig) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = Head(backbone.width, config)
        self.own_patch_head = None if config.shared else Head(backbone.width, config)

    @property
    def patch_head(self) -> Head:
        """The head that patches go through."""
        return self.own_patch_head or self.head

    def score(
        self, cls: Float[Tensor, "B D"], patches: Float[Tensor, "M D"]
    ) -> tuple[Float[Tensor, "B K"], Float[Tensor, "M K"]]:
        """Scores of both kinds of token, in one pass where they share the head."""
        if self.own_patch_head is not None:
            return self.head(cls), self.own_patch_head(patches)
        scores = self.head(torch.cat([cls, patches]))
        return scores[: len(cls)], scores[len(cls) :]

    def last_layers(self) -> list[nn.Parameter]:
        """The parameters that stay frozen at first."""
        heads = {id(h): h for h in (self.head, self.patch_head)}.values()
        return [p for head in heads for p in head.last_layer.parameters()]
