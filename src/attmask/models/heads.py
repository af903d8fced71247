"""The projection head: tokens to logits over prototypes."""

import itertools

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from attmask.settings import Config, setting


class HeadConfig(Config):
    """The projection head on top of the backbone."""

    prototypes: int = setting(
        8192, "number of prototypes K", paper="8192 iBOT, 65536 DINO", ge=2, le=2**24
    )
    hidden: int = setting(2048, "width of the hidden layers", paper="2048", ge=1, le=2**17)
    bottleneck: int = setting(256, "width before the last layer", paper="256", ge=1, le=2**17)
    layers: int = setting(3, "layers before the last one", paper="3", ge=1, le=100)
    shared: bool = setting(True, "use one head for both [CLS] and patches", paper="true")


class Head(nn.Module):
    """An MLP to a point on the unit sphere, then its similarity to K prototypes."""

    def __init__(self, width: int, config: HeadConfig) -> None:
        super().__init__()
        widths = [width, *[config.hidden] * (config.layers - 1), config.bottleneck]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.GELU()]
        self.mlp = nn.Sequential(*layers[:-1])
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.last_layer = weight_norm(nn.Linear(config.bottleneck, config.prototypes, bias=False))
        nn.init.ones_(self.last_layer.parametrizations.weight.original0)  # the norm g, trainable

    def forward(self, tokens: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens K"]:
        """Logits over the prototypes."""
        logits: Tensor = self.last_layer(self.embed(tokens))
        return logits

    def embed(self, tokens: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens E"]:
        """The point on the unit sphere; from here on the head is linear."""
        return F.normalize(self.mlp(tokens), dim=-1)

    def exact_logits(self, points: Float[Tensor, "*tokens E"]) -> Float[Tensor, "*tokens K"]:
        """Logits of points on the sphere, without autocast."""
        with torch.autocast(points.device.type, enabled=False):
            weight = self.last_layer.weight
            return F.linear(points.to(weight.dtype), weight)

    def mean_logits(self, points: Float[Tensor, "*tokens E"]) -> Float[Tensor, "K"]:
        """The mean of the logits of all points, computed as the logits of their mean."""
        every = points.to(self.last_layer.weight.dtype).flatten(0, -2)
        return self.exact_logits(every.mean(0))
