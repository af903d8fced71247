"""The measures of DAVIS: region similarity J and boundary accuracy F, with recall and decay."""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Bool, Float64, UInt8

BOUNDARY_TOLERANCE = 0.008
RECALL_THRESHOLD = 0.5
DECAY_BINS = 4


def region_similarity(truth: Bool[np.ndarray, "H W"], predicted: Bool[np.ndarray, "H W"]) -> float:
    """J: the intersection over the union of two masks; 1 if both are empty."""
    union = int(np.count_nonzero(truth | predicted))
    return int(np.count_nonzero(truth & predicted)) / union if union else 1.0


def boundary_accuracy(
    truth: Bool[np.ndarray, "H W"],
    predicted: Bool[np.ndarray, "H W"],
    tolerance: float = BOUNDARY_TOLERANCE,
) -> float:
    """F: precision and recall of the boundary, within a share of the image diagonal."""
    radius = math.ceil(tolerance * math.hypot(*truth.shape))
    of_truth, of_predicted = boundary(truth), boundary(predicted)
    if not of_truth.any() or not of_predicted.any():
        return float(of_truth.any() == of_predicted.any())
    # Only the surroundings of the boundaries matter, and dilation takes most of the time.
    (top, left), (bottom, right) = _extent(of_truth | of_predicted)
    around = slice(top, bottom + 1), slice(left, right + 1)
    of_truth, of_predicted = of_truth[around], of_predicted[around]
    precision = _share_near(of_predicted, of_truth, radius)
    recall = _share_near(of_truth, of_predicted, radius)
    total = precision + recall
    return 2 * precision * recall / total if total else 0.0


def boundary(mask: Bool[np.ndarray, "H W"]) -> UInt8[np.ndarray, "H W"]:
    """1 where a pixel differs from its neighbour to the right, below, or to the lower right."""
    extended = np.pad(mask, ((0, 1), (0, 1)), mode="edge")
    right, below, diagonal = extended[:-1, 1:], extended[1:, :-1], extended[1:, 1:]
    differs: Bool[np.ndarray, "H W"] = (mask ^ right) | (mask ^ below) | (mask ^ diagonal)
    return differs.astype(np.uint8)


def _extent(marked: UInt8[np.ndarray, "H W"]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The first and the last row and column with a mark."""
    rows, cols = marked.nonzero()
    return (int(rows.min()), int(cols.min())), (int(rows.max()), int(cols.max()))


def _share_near(
    ours: UInt8[np.ndarray, "H W"], others: UInt8[np.ndarray, "H W"], radius: int
) -> float:
    """The share of our pixels that are within the radius of one of the others."""
    along = np.arange(-radius, radius + 1)
    disk = (along[:, None] ** 2 + along**2 <= radius**2).astype(np.uint8)
    near = cv2.dilate(others, disk)
    return int(np.count_nonzero(ours & near)) / int(np.count_nonzero(ours))


@dataclass(frozen=True)
class Statistics:
    """A measure over the frames of one object: its mean, recall and decay, from 0 to 1."""

    mean: float
    recall: float
    """The share of the frames above a threshold."""
    decay: float
    """How much the mean falls from the first to the last part of the sequence."""


def statistics(
    frames: Float64[np.ndarray, " frames"],
    threshold: float = RECALL_THRESHOLD,
    bins: int = DECAY_BINS,
) -> Statistics:
    """Summarise the values of consecutive frames as the official evaluation does.

    The parts of the decay share the frame at their border, as they do there.
    """
    borders = np.round(np.linspace(1, len(frames), bins + 1) + 1e-10).astype(np.int64) - 1
    first = frames[borders[0] : borders[1] + 1]
    last = frames[borders[-2] : borders[-1] + 1]
    return Statistics(
        mean=float(frames.mean()),
        recall=float((frames > threshold).mean()),
        decay=float(first.mean() - last.mean()),
    )
