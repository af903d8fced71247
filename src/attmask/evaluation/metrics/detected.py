"""What was detected in one image, and how much of it is right."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64
from torch import Tensor

from attmask.data.coco import Annotated
from attmask.data.coco_masks import Rle, encode, mask_library

SURE = 0.5
"""The score from which on a detection counts in the F1 of an image."""
OVERLAP = 0.5
"""The IoU from which on a detection is right in the F1 of an image."""


@dataclass(frozen=True, eq=False)
class Found:
    """What was detected in one image."""

    boxes: Float32[np.ndarray, "n 4"]
    """x1 y1 x2 y2 in pixels of the stored image."""
    scores: Float32[np.ndarray, " n"]
    labels: Int64[np.ndarray, " n"]
    rles: tuple[Rle, ...] | None
    """The masks as run lengths, which are small; None for detections without masks."""

    @classmethod
    def of(
        cls, boxes: Tensor, scores: Tensor, labels: Tensor, masks: Iterable[Tensor] | None
    ) -> "Found":
        """From tensors; the masks come in chunks of n H W, because all at once may be too large."""
        return cls(
            boxes.float().cpu().numpy(),
            scores.float().cpu().numpy(),
            labels.long().cpu().numpy(),
            None
            if masks is None
            else tuple(rle for chunk in masks for rle in encode(chunk.cpu().numpy())),
        )

    def __len__(self) -> int:
        return len(self.scores)


def image_f1(found: Found, truth: Annotated) -> float:
    """The F1 of the sure boxes of one image in per cent: 100 where nothing was wanted nor found.

    A detection belongs to the object of its class that it overlaps most, by an IoU of at least
    0.5, the surest first. What lies in a crowd is neither right nor wrong.
    """
    hits = wrong = 0
    sure = found.scores >= SURE
    for label in np.unique(np.concatenate([truth.labels, found.labels[sure]])).tolist():
        wanted = truth.labels == label
        crowd = truth.is_crowd[wanted]
        ranked = np.flatnonzero(sure & (found.labels == label))
        ranked = ranked[np.argsort(-found.scores[ranked], kind="stable")]
        overlaps = _overlaps(found.boxes[ranked], truth.boxes[wanted], crowd)
        free = ~crowd
        for row in overlaps:
            best = int(np.where(free, row, -1.0).argmax()) if len(row) else -1
            if best >= 0 and free[best] and row[best] >= OVERLAP:
                hits += 1
                free[best] = False
            elif not (crowd & (row >= OVERLAP)).any():
                wrong += 1
    missed = int((~truth.is_crowd).sum()) - hits
    return 100.0 if hits + wrong + missed == 0 else 200 * hits / (2 * hits + wrong + missed)


def _overlaps(
    found: Float32[np.ndarray, "n 4"],
    wanted: Float32[np.ndarray, "m 4"],
    crowd: Bool[np.ndarray, " m"],
) -> Float64[np.ndarray, "n m"]:
    """The IoU of boxes; in a crowd, the share of the detection that lies in it."""
    if not len(found) or not len(wanted):
        return np.zeros((len(found), len(wanted)))
    one, other = corner_and_size(found), corner_and_size(wanted)
    return np.asarray(mask_library().iou(one, other, crowd.astype(np.uint8).tolist()))


def corner_and_size(boxes: Float32[np.ndarray, "n 4"]) -> Float64[np.ndarray, "n 4"]:
    """Boxes as COCO has them: x, y, width and height."""
    corners = boxes.astype(np.float64)
    return np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
