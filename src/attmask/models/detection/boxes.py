"""Boxes in training: which instance a box matches, which are sampled, how they change."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torchvision.models.detection._utils import (
    BalancedPositiveNegativeSampler,
    BoxCoder,
    Matcher,
)
from torchvision.ops import box_iou, clip_boxes_to_image, generalized_box_iou_loss

from attmask.models.detection.instances import Instances


@dataclass(frozen=True, eq=False)
class Samples:
    """The boxes of one image that a stage is trained on, positive ones first."""

    boxes: Float[Tensor, "n 4"]
    labels: Int[Tensor, " n"]
    """The class of the matched instance, or the number of classes for the background."""
    matches: Int[Tensor, " n"]
    """The index of the matched instance; -1 for the background."""
    added: Bool[Tensor, " n"]
    """Whether the box is that of an instance, added to the proposals."""

    @property
    def positive(self) -> Bool[Tensor, " n"]:
        """Whether a box matches an instance."""
        return self.matches >= 0


def match(
    boxes: Float[Tensor, "n 4"], truth: Float[Tensor, "m 4"], positive_iou: float
) -> Int[Tensor, " n"]:
    """The index of the instance that each box overlaps most; -1 where the IoU is too small."""
    if not len(truth) or not len(boxes):
        return torch.full((len(boxes),), -1, device=boxes.device)
    overlaps = box_iou(truth, boxes).nan_to_num(0)  # 0 / 0 of two empty boxes
    matches: Tensor = Matcher(positive_iou, positive_iou)(overlaps)
    return matches


def sample(
    proposals: Float[Tensor, "n 4"],
    truth: Instances,
    *,
    classes: int,
    positive_iou: float,
    sampler: BalancedPositiveNegativeSampler,
) -> Samples:
    """Samples of the proposals and of the boxes of the instances, which match themselves."""
    own = torch.arange(len(truth.boxes), device=proposals.device)
    boxes = torch.cat([truth.boxes, proposals])
    matches = torch.cat([own, match(proposals, truth.boxes, positive_iou)])
    (positive,), (negative,) = sampler([(matches >= 0).long()])
    chosen = torch.cat([torch.where(positive)[0], torch.where(negative)[0]])
    matches = matches[chosen]
    labels = F.pad(truth.labels.long(), (0, 1), value=classes)[matches]  # the last one is at -1
    return Samples(boxes[chosen], labels, matches, added=chosen < len(own))


def box_coder(stds: Sequence[float]) -> BoxCoder:
    """Changes of boxes in units of these standard deviations."""
    x, y, width, height = (1 / std for std in stds)
    return BoxCoder((x, y, width, height))


def giou_loss(
    predicted: Float[Tensor, "n 4"], truth: Float[Tensor, "n 4"], samples: int
) -> Float[Tensor, ""]:
    """The sum of 1 - GIoU over positive boxes, divided by the number of all samples."""
    loss: Tensor = generalized_box_iou_loss(predicted, truth, reduction="sum")
    return loss / max(samples, 1)


@torch.no_grad()
def refine(
    boxes: Float[Tensor, "n 4"],
    changes: Float[Tensor, "n 4"],
    coder: BoxCoder,
    size_hw: tuple[int, int],
) -> Float[Tensor, "n 4"]:
    """Changed boxes, inside the image, also those of weights that are not finite."""
    decoded = coder.decode_single(changes, boxes).nan_to_num(0)
    refined: Tensor = clip_boxes_to_image(decoded, size_hw)
    return refined
