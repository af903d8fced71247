"""Regions: the features inside boxes, each from the level that fits its size."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchvision.ops import roi_align
from torchvision.ops._utils import convert_boxes_to_roi_format
from torchvision.ops.boxes import box_area


@dataclass(frozen=True)
class RegionPooler:
    """RoIAlign over the levels of a feature pyramid."""

    strides: tuple[float, ...]
    finest_scale: float

    def __call__(
        self,
        maps: Sequence[Float[Tensor, "B channels _ _"]],
        boxes: Sequence[Float[Tensor, "_ 4"]],
        size: int,
    ) -> Float[Tensor, "boxes channels {size} {size}"]:
        """The features of the boxes of all images, image after image, in float32."""
        regions = convert_boxes_to_roi_format(list(boxes))
        levels = self.levels(regions[:, 1:])
        order = levels.argsort(stable=True)
        counts = torch.bincount(levels, minlength=len(self.strides)).tolist()
        # Levels without a box stay in the graph: their gradients are zero.
        pooled = [
            roi_align(features.float(), part, size, 1 / stride, sampling_ratio=0, aligned=True)
            for features, part, stride in zip(
                maps, regions[order].split(counts), self.strides, strict=True
            )
        ]
        return torch.cat(pooled)[order.argsort()]

    def levels(self, boxes: Float[Tensor, "boxes 4"]) -> Int[Tensor, " boxes"]:
        """The level of each box: the finest up to twice `finest_scale`, then one per octave."""
        scale = box_area(boxes).sqrt() / self.finest_scale
        level = torch.floor(torch.log2(scale + 1e-6))
        return level.clamp(0, len(self.strides) - 1).long()
