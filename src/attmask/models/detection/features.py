"""Features of an image at five strides: the pyramid of a ViT, joined from coarse to fine."""

import numpy as np
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torchvision.ops.feature_pyramid_network import FeaturePyramidNetwork, LastLevelMaxPool

from attmask.models.backbone import Backbone
from attmask.models.pyramid import Pyramid


class Features(nn.Module):
    """A `Pyramid` and an FPN without norm; the fifth level is every second place of the fourth."""

    def __init__(self, backbone: Backbone, channels: int, *, norm: bool) -> None:
        super().__init__()
        self.pyramid = Pyramid(backbone.width, backbone.patch_size, backbone.depth, norm=norm)
        self.fpn = FeaturePyramidNetwork(
            [backbone.width] * len(self.pyramid.strides), channels, LastLevelMaxPool()
        )
        self.strides = (*self.pyramid.strides, 2 * self.pyramid.strides[-1])

    def forward(
        self,
        backbone: Backbone,
        images: Float[Tensor, "B C height width"],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> list[Float[Tensor, "B channels _ _"]]:
        """The maps of the levels, finest first; `keep` is the drop path."""
        maps = self.pyramid(backbone, images, keep)
        joined = self.fpn({str(level): features for level, features in enumerate(maps)})
        return list(joined.values())
