"""Masks as labels of pixels and patches, and scores of patches as masks."""

import numpy as np
import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor
from torch.nn import functional

from attmask.data.config import DataConfig
from attmask.data.decode import open_picture
from attmask.data.masks import MaskedImages

_NUMBERS_AT_ONCE = 2**24  # scores of pixels: 64 MB


def read_labels(
    images: MaskedImages, index: int, data: DataConfig
) -> Int16[np.ndarray, "height width"]:
    """The class of each pixel of an image; of the image itself only the size is read."""
    return images.read(index, open_picture(images.source, index, data).size_wh)


def squeezed_labels(
    labels: Int16[np.ndarray, "height width"], size: int
) -> Int16[Tensor, "size size"]:
    """Labels in a square, as `Squeezed` shows their image; each is that of the nearest pixel."""
    rows, columns = (
        ((2 * np.arange(size) + 1) * side // (2 * size)).astype(np.int64) for side in labels.shape
    )
    return torch.from_numpy(labels[rows[:, None], columns])


def class_shares(
    labels: Int16[Tensor, "size size"], patch_size: int, classes: int
) -> Float[Tensor, "N C"]:
    """The share of each class among the labelled pixels of each patch; zeros where none is."""
    side = len(labels) // patch_size
    pixels = labels.long().view(side, patch_size, side, patch_size).transpose(1, 2)
    flat = pixels.reshape(side * side, -1)
    patch = torch.arange(len(flat))[:, None].expand_as(flat)
    is_labelled = flat >= 0
    cells = patch[is_labelled] * classes + flat[is_labelled]
    counts = torch.bincount(cells, minlength=len(flat) * classes).view(len(flat), classes)
    return counts / counts.sum(dim=1, keepdim=True).clamp_min(1)


def best_classes(
    scores: Float[Tensor, "C h w"], size_hw: tuple[int, int]
) -> Int[Tensor, "height width"]:
    """The class with the highest score of each pixel; scores of patches are resized (bilinear).

    Some classes are resized at a time, because all scores of a large image may not fit in memory.
    Ties go to the lower class.
    """
    at_once = max(1, _NUMBERS_AT_ONCE // (size_hw[0] * size_hw[1]))
    best = torch.full(size_hw, -torch.inf, device=scores.device)
    labels = torch.zeros(size_hw, dtype=torch.int64, device=scores.device)
    for first in range(0, len(scores), at_once):
        some = scores[None, first : first + at_once]
        shown = functional.interpolate(some, size_hw, mode="bilinear", align_corners=False)[0]
        highest, number = shown.max(dim=0)
        labels = torch.where(highest > best, number + first, labels)
        best = torch.maximum(best, highest)
    return labels
