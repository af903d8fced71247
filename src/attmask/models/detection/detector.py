"""The detector: a ViT as the backbone of Cascade Mask R-CNN."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torchvision.models.detection.image_list import ImageList

from attmask.models.backbone import Backbone
from attmask.models.detection.cascade import Cascade
from attmask.models.detection.config import DetectorConfig
from attmask.models.detection.features import Features
from attmask.models.detection.instances import Detections, Instances
from attmask.models.detection.proposals import ProposalNetwork
from attmask.models.layers import layers_of_backbone


class Detector(nn.Module):
    """Backbone, feature pyramid, proposals, and a cascade of box and mask heads.

    Images are padded at the right and at the bottom to a common size.
    """

    def __init__(self, backbone: Backbone, classes: int, config: DetectorConfig) -> None:
        super().__init__()
        self.backbone = backbone
        self.features = Features(backbone, config.channels, norm=config.norm_levels)
        self.features.pyramid.freeze_unused_(backbone)
        strides = self.features.strides
        self.proposals = ProposalNetwork(config.channels, strides, config.proposals)
        self.cascade = Cascade(config.channels, classes, strides[:-1], config.cascade)
        self.config = config

    def forward(
        self,
        images: Float[Tensor, "B C height width"],
        targets: Sequence[Instances],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted losses in training, whose sum is minimised; `keep` is the drop path."""
        assert self.training, "losses are those of a network in training mode"
        maps = self.features(self.backbone, images, keep)
        truth = [{"boxes": target.boxes, "size_hw": target.size_hw} for target in targets]
        sizes = [target.size_hw for target in targets]
        proposals, losses = self.proposals(ImageList(images, sizes), _by_level(maps), truth)
        return {**losses, **self.cascade(_finest(maps), proposals, targets)}

    def detect(
        self, images: Float[Tensor, "B C height width"], sizes_hw: Sequence[tuple[int, int]]
    ) -> list[Detections]:
        """What a network in evaluation mode finds in images of these sizes without padding."""
        assert not self.training, "detections are those of a network in evaluation mode"
        maps = self.features(self.backbone, images)
        proposals, _ = self.proposals(ImageList(images, list(sizes_hw)), _by_level(maps))
        return self.cascade.detect(_finest(maps), proposals, sizes_hw, self.config.detections)

    def prepare(self) -> None:
        """Compute nothing: an engine that hooks calls of the network prepares it at the first."""

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The layers as timm's layer decay wants them."""
        return layers_of_backbone()


def _by_level(maps: list[Tensor]) -> dict[str, Tensor]:
    return {str(level): features for level, features in enumerate(maps)}


def _finest(maps: list[Tensor]) -> list[Tensor]:
    """The levels that boxes are pooled from, in float32; the coarsest is for anchors alone."""
    return [features.float() for features in maps[:-1]]
