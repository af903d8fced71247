"""Proposals: boxes that may hold an instance, from a region proposal network."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torchvision.models.detection._utils import Matcher
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.rpn import RegionProposalNetwork, RPNHead

from attmask.models.detection.anchors import Anchors
from attmask.models.detection.config import ProposalsConfig

Size = tuple[int, int]


class AnchorMatcher(Matcher):  # type: ignore[misc]
    """Matches anchors to instances as mmdet does: an instance also gets its best anchors below
    the threshold, unless they are too bad."""

    def __init__(self, positive_iou: float, negative_iou: float, lowest_iou: float) -> None:
        super().__init__(positive_iou, negative_iou, allow_low_quality_matches=True)
        self.lowest_iou = lowest_iou

    def set_low_quality_matches_(
        self,
        matches: Int[Tensor, " anchors"],
        all_matches: Int[Tensor, " anchors"],
        match_quality_matrix: Float[Tensor, "n anchors"],
    ) -> None:
        """Match the best anchors of each instance to it; the last instance wins an anchor."""
        best = match_quality_matrix.amax(dim=1, keepdim=True)
        instance, anchor = torch.where((match_quality_matrix == best) & (best >= self.lowest_iou))
        last = torch.full_like(matches, -1).scatter_reduce(0, anchor, instance, "amax")
        matches.copy_(torch.where(last >= 0, last, matches))


class Float32Head(RPNHead):  # type: ignore[misc]
    """torchvision's head with outputs in float32 under autocast: boxes need the precision."""

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Objectness and changes of the anchors of each level."""
        logits, changes = super().forward(x)
        return [level.float() for level in logits], [level.float() for level in changes]


class ProposalNetwork(RegionProposalNetwork):  # type: ignore[misc]
    """torchvision's network with mmdet's choice of the anchors that are trained on."""

    def __init__(self, channels: int, strides: Sequence[float], config: ProposalsConfig) -> None:
        counts = {"training": config.train_count, "testing": config.test_count}
        super().__init__(
            Anchors(strides, config.anchor_scale, config.anchor_ratios),
            Float32Head(channels, len(config.anchor_ratios)),
            config.positive_iou,
            config.negative_iou,
            config.samples,
            config.positive_fraction,
            pre_nms_top_n=counts,
            post_nms_top_n=counts,
            nms_thresh=config.nms_iou,
        )
        self.proposal_matcher = AnchorMatcher(
            config.positive_iou, config.negative_iou, config.lowest_iou
        )
        self.inside_only = config.inside_only

    def forward(
        self,
        images: ImageList,
        features: dict[str, Tensor],
        targets: list[dict[str, Any]] | None = None,
    ) -> tuple[list[Float[Tensor, "_ 4"]], dict[str, Float[Tensor, ""]]]:
        """Proposals of each image, best first; in training the losses too."""
        proposals, losses = super().forward(images, features, targets)
        names = {"loss_objectness": "rpn_class", "loss_rpn_box_reg": "rpn_box"}
        return proposals, {names[name]: loss for name, loss in losses.items()}

    def assign_targets_to_anchors(
        self, anchors: list[Float[Tensor, "anchors 4"]], targets: list[dict[str, Any]]
    ) -> tuple[list[Float[Tensor, " anchors"]], list[Float[Tensor, "anchors 4"]]]:
        """1, 0 or -1 (not trained on) for each anchor, and the box of the instance it matches."""
        labels, matched = [], []
        for boxes, target in zip(anchors, targets, strict=True):
            used = inside(boxes, target["size_hw"]) if self.inside_only else None
            if used is None or not used.any():  # of an image smaller than every anchor all count
                used = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
            found, truth = super().assign_targets_to_anchors([boxes[used]], [target])
            labels.append(boxes.new_full((len(boxes),), -1).masked_scatter(used, found[0]))
            matched.append(boxes.masked_scatter(used[:, None], truth[0]))
        return labels, matched

    def filter_proposals(
        self,
        proposals: Float[Tensor, "B anchors 4"],
        objectness: Float[Tensor, "..."],
        image_shapes: list[Size],
        num_anchors_per_level: list[int],
    ) -> tuple[list[Float[Tensor, "_ 4"]], list[Float[Tensor, " _"]]]:
        """The best proposals after NMS; an image without any is one itself, so that the heads
        always have a box."""
        boxes, scores = super().filter_proposals(
            proposals, objectness, image_shapes, num_anchors_per_level
        )
        for place, (height, width) in enumerate(image_shapes):
            if not len(boxes[place]):
                boxes[place] = boxes[place].new_tensor([[0, 0, width, height]])
                scores[place] = scores[place].new_zeros(1)
        return boxes, scores


def inside(boxes: Float[Tensor, "n 4"], size_hw: Size) -> Bool[Tensor, " n"]:
    """Whether boxes lie inside the image."""
    height, width = size_hw
    x1, y1, x2, y2 = boxes.unbind(dim=1)
    return (x1 >= 0) & (y1 >= 0) & (x2 < width) & (y2 < height)
