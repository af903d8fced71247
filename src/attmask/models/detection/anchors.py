"""Anchors: boxes of a few shapes around every place of every level."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList


class Anchors(AnchorGenerator):  # type: ignore[misc]
    """torchvision's anchors without its rounding of sizes, strides and dtype.

    A place is the upper left corner of its cell, as in mmdet; strides need not be integers, as
    those of patches of 14 pixels.
    """

    def __init__(self, strides: Sequence[float], scale: float, ratios: Sequence[float]) -> None:
        super().__init__(
            sizes=tuple((scale * stride,) for stride in strides),
            aspect_ratios=(tuple(ratios),) * len(strides),
        )
        self.strides = tuple(strides)

    def generate_anchors(
        self,
        scales: Sequence[float],
        aspect_ratios: Sequence[float],
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> Float[Tensor, "anchors 4"]:
        """The anchors of a place, around 0: height / width is the ratio, the area scale²."""
        sizes = torch.as_tensor(scales, dtype=dtype, device=device)
        roots = torch.as_tensor(aspect_ratios, dtype=dtype, device=device).sqrt()
        widths = (sizes[None, :] / roots[:, None]).flatten()
        heights = (sizes[None, :] * roots[:, None]).flatten()
        return torch.stack([-widths, -heights, widths, heights], dim=1) / 2

    def forward(
        self, image_list: ImageList, feature_maps: list[Tensor]
    ) -> list[Float[Tensor, "anchors 4"]]:
        """The anchors of all levels, the same for every image, in float32 under autocast too."""
        self.set_cell_anchors(torch.float32, feature_maps[0].device)
        sizes = [list(levels.shape[-2:]) for levels in feature_maps]
        levels = self.grid_anchors(sizes, [[stride, stride] for stride in self.strides])
        return [torch.cat(levels)] * len(image_list.image_sizes)
