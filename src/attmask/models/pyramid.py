"""The feature pyramid of a plain vision transformer: maps of four blocks at four strides."""

import numpy as np
from jaxtyping import Float, Float64
from torch import Tensor, nn

from attmask.models.backbone import Backbone


class Pyramid(nn.Module):
    """Images become the patch tokens of four blocks, as maps of four resolutions.

    BEiT and iBOT rescale with these layers: the first two maps are enlarged by transposed
    convolutions, the third is left as it is, the fourth is pooled. With patches of 8 pixels all
    are one step coarser, so that the strides are again 4, 8, 16 and 32 pixels.
    """

    def __init__(self, width: int, patch_size: int, depth: int, *, norm: bool = False) -> None:
        super().__init__()
        self.layers = pyramid_layers(depth)
        self.norm = norm
        factors = (0.5, 1.0, 2.0, 4.0) if patch_size == 8 else (0.25, 0.5, 1.0, 2.0)
        self.strides = tuple(patch_size * factor for factor in factors)
        self.rescale = nn.ModuleList(_rescale(width, factor) for factor in factors)

    def forward(
        self,
        backbone: Backbone,
        images: Float[Tensor, "B C height width"],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> list[Float[Tensor, "B D _ _"]]:
        """The maps, finest first; `keep` is the drop path."""
        tokens = backbone.outputs(images, self.layers, keep, norm=self.norm)
        patches = tokens[:, :, backbone.prefix :].transpose(2, 3)
        maps = patches.unflatten(3, backbone.grid(*images.shape[-2:]))
        return [rescale(level) for rescale, level in zip(self.rescale, maps, strict=True)]

    def freeze_unused_(self, backbone: Backbone) -> None:
        """Freeze what the maps do not depend on: the mask token, and the final norm unless it is
        asked for. Processes that share gradients wait for one of every trained parameter."""
        backbone.mask_token.requires_grad_(False)
        backbone.vit.norm.requires_grad_(self.norm)


def pyramid_layers(depth: int) -> tuple[int, int, int, int]:
    """The blocks that are read, counted from 1: after a third, a half, two thirds and all.

    For depth 12 these are 4, 6, 8 and 12 as in iBOT, for depth 24 twice that as in BEiT-L. They
    repeat in networks of fewer than four blocks.
    """
    return max(1, depth // 3), max(1, depth // 2), depth - depth // 3, depth


def _rescale(width: int, factor: float) -> nn.Module:
    """Layers that multiply the stride of a map by a factor.

    Pooling covers the last row and column of an odd grid too, which iBOT leaves out.
    """
    if factor == 1:
        return nn.Identity()
    if factor > 1:
        return nn.MaxPool2d(int(factor), ceil_mode=True)
    last = nn.ConvTranspose2d(width, width, kernel_size=2, stride=2)
    if factor == 0.5:
        return last
    first = nn.ConvTranspose2d(width, width, kernel_size=2, stride=2)
    return nn.Sequential(first, nn.BatchNorm2d(width), nn.GELU(), last)
