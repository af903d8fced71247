"""Measures of semantic segmentation over all pixels of a set: mIoU, aAcc and mAcc.

As in mmsegmentation, one confusion matrix is counted over the whole set. Means over classes leave
out what is undefined (nanmean): the IoU of a class that occurs neither in the truth nor in a
prediction, and the accuracy of a class that does not occur in the truth. Pixels without a class
count nowhere.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float64, Int, Int64
from torch import Tensor

from attmask import distributed
from attmask.errors import UserError
from attmask.metric import Metric
from attmask.wording import agree

PREFIX = "segment"
_WITHOUT_CLASS = -1


class NoPixelsError(UserError):
    """No pixel has a class, so nothing can be measured."""


@dataclass(frozen=True)
class PixelRow:
    """The measures of one class in per cent, None where they are undefined."""

    name: str
    share: float
    """The share of the labelled pixels that are of this class."""
    iou: float | None
    accuracy: float | None
    """The share of its pixels that were recognised."""
    confused_with: str = ""
    """The class that its pixels were most often taken for."""
    confused: float = 0.0
    """The share of its pixels that were."""


@dataclass(frozen=True, eq=False)
class Segmentation:
    """All measures of predicted masks."""

    classes: tuple[str, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[PixelRow, ...]
    confusion: Int64[np.ndarray, "C C"]
    """The number of pixels by true class (row) and predicted class."""
    worst_first: tuple[tuple[int, float], ...]
    """The images with labelled pixels, each with its own mean IoU in per cent, the worst first."""
    notes: tuple[str, ...] = ()


@dataclass(eq=False)
class Segmented:
    """Counts pixels by true and predicted class, image after image."""

    classes: int
    confusion: Int64[np.ndarray, "C C"] = field(init=False)
    image_iou: dict[int, float] = field(default_factory=dict)
    """The mean IoU of each image with labelled pixels, over the classes of its truth and
    prediction, in per cent."""

    def __post_init__(self) -> None:
        self.confusion = np.zeros((self.classes, self.classes), dtype=np.int64)
        self._count = _confusion_matrix()

    def update(self, predicted: Int[Tensor, "H W"], truth: Int[Tensor, "H W"], image: int) -> None:
        """Count the pixels of an image, whose number is `image`."""
        counted = self._count(
            predicted, truth, self.classes, ignore_index=_WITHOUT_CLASS, validate_args=False
        )
        own = counted.cpu().numpy().astype(np.int64)
        self.confusion += own
        if own.any():
            self.image_iou[image] = 100 * float(np.nanmean(_iou(own)))

    def merge(self, other: "Segmented") -> None:
        """Add what was counted of other images."""
        self.confusion += other.confusion
        self.image_iou.update(other.image_iou)

    def of_all_processes(self) -> "Segmented":
        """What all processes have counted, in each of them."""
        whole = Segmented(self.classes)
        for confusion, image_iou in distributed.gather((self.confusion, self.image_iou)):
            whole.confusion += confusion
            whole.image_iou.update(image_iou)
        return whole

    def result(self, names: Sequence[str], prefix: str = PREFIX) -> Segmentation:
        """The measures of all images that were counted."""
        confusion = self.confusion
        pixels, total = confusion.sum(axis=1), int(confusion.sum())
        if not total:
            raise NoPixelsError(
                "no pixel of the images to measure on has a class, so nothing can be measured; "
                "check their masks, and which values are ignored"
            )
        iou, accuracy = _iou(confusion), _divided(confusion.diagonal(), pixels)
        measured = (
            ("miou", np.nanmean(iou), "mean IoU"),
            ("aacc", confusion.trace() / total, "pixel accuracy"),
            ("macc", np.nanmean(accuracy), "mean pixel accuracy per class"),
        )
        return Segmentation(
            tuple(names),
            tuple(
                Metric(f"{prefix}.{key}", 100 * float(value), "%", True, title=title)
                for key, value, title in measured
            ),
            tuple(
                _row(number, names, confusion, float(iou[number]), float(accuracy[number]))
                for number in range(len(names))
            ),
            confusion,
            tuple(sorted(self.image_iou.items(), key=lambda item: (item[1], item[0]))),
            _left_out(int(np.isnan(iou).sum()), int(np.isnan(accuracy).sum())),
        )


def _row(
    number: int,
    names: Sequence[str],
    confusion: Int64[np.ndarray, "C C"],
    iou: float,
    accuracy: float,
) -> PixelRow:
    wrong = confusion[number].copy()
    pixels = int(wrong.sum())
    wrong[number] = 0
    most = int(wrong.argmax())
    return PixelRow(
        names[number],
        100 * pixels / int(confusion.sum()),
        _percent(iou),
        _percent(accuracy),
        names[most] if wrong[most] else "",
        100 * int(wrong[most]) / pixels if pixels else 0.0,
    )


def _iou(confusion: Int64[np.ndarray, "C C"]) -> Float64[np.ndarray, " C"]:
    """The intersection over the union of each class; NaN where the union is empty."""
    both = confusion.diagonal()
    return _divided(both, confusion.sum(axis=0) + confusion.sum(axis=1) - both)


def _divided(
    part: Int64[np.ndarray, " C"], whole: Int64[np.ndarray, " C"]
) -> Float64[np.ndarray, " C"]:
    shares = np.full(len(whole), np.nan)
    np.divide(part, whole, out=shares, where=whole > 0)
    return shares


def _percent(share: float) -> float | None:
    return None if math.isnan(share) else 100 * share


def _left_out(without_iou: int, without_accuracy: int) -> tuple[str, ...]:
    notes = []
    if without_iou:
        are = agree(without_iou, "class is", "classes are")
        why = "which no pixel is or was predicted to be"
        notes.append(f"{without_iou} {are} left out of the mean IoU, {why}")
    if without_accuracy:
        are = agree(without_accuracy, "class without a pixel is", "classes without a pixel are")
        notes.append(f"{without_accuracy} {are} left out of the mean accuracy")
    return tuple(notes)


def _confusion_matrix() -> Callable[..., Any]:
    """torchmetrics' confusion matrix of one image: true classes in rows."""
    try:
        from torchmetrics.functional.classification import multiclass_confusion_matrix
    except ImportError as missing:
        raise UserError(
            "segmentation is measured with torchmetrics, which is missing; run: "
            "pip install 'attmask[dense]'"
        ) from missing
    return multiclass_confusion_matrix
