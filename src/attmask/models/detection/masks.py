"""Masks in training: the truth inside boxes, and the loss against it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torchvision.ops import roi_align


def mask_targets(
    masks: UInt8[Tensor, "m h w"],
    boxes: Float[Tensor, "n 4"],
    matches: Int[Tensor, " n"],
    size: int,
) -> Float[Tensor, "n {size} {size}"]:
    """1 where at least half of a cell of a box is in the mask of the instance it matches."""
    regions = torch.cat([matches[:, None].to(boxes.dtype), boxes], dim=1)
    covered: Tensor = roi_align(
        masks[:, None].float(), regions, size, sampling_ratio=0, aligned=True
    )
    return (covered[:, 0] >= 0.5).float()


def mask_loss(logits: Float[Tensor, "n M M"], targets: Float[Tensor, "n M M"]) -> Float[Tensor, ""]:
    """Binary cross entropy, 0 without any mask."""
    total = F.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
    return total / max(logits.numel(), 1)
