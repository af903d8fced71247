"""Measures of a classifier on labelled images: over all images, and for each class.

Classes without an image have no recall and no average precision; means leave them out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64
from torch import Tensor

from attmask.evaluation.metrics.accuracy import ranks
from attmask.metric import Metric
from attmask.wording import agree

PREFIX = "classify"


@dataclass(frozen=True)
class ClassRow:
    """The measures of one class in per cent, None where they are undefined."""

    name: str
    images: int
    recall: float | None
    """The share of its images that were recognised: the accuracy on this class."""
    precision: float | None
    f1: float | None
    average_precision: float | None = None
    """Of multi-label classifiers."""
    confused_with: str = ""
    """The class that its images were most often taken for, and how many were."""
    confused: int = 0


@dataclass(frozen=True, eq=False)
class Classification:
    """All measures of a classifier on labelled images."""

    classes: tuple[str, ...]
    metrics: tuple[Metric, ...]
    rows: tuple[ClassRow, ...]
    confusion: Int64[np.ndarray, "C C"] | None
    """The number of images by true class (row) and predicted class; None if multi-label."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Answers:
    """True classes, the classes that were ranked first, and the rank of the true class from 0."""

    labels: Int[Tensor, "M"]
    predicted: Int[Tensor, "M"]
    ranks: Int[Tensor, "M"]

    @classmethod
    def of(cls, labels: Int[Tensor, "M"], logits: Float[Tensor, "M C"]) -> "Answers":
        """The answers that logits give; ties go to the lower class."""
        return cls(labels, logits.argmax(dim=1), ranks(logits, labels))

    @classmethod
    def joined(cls, parts: Sequence["Answers"]) -> "Answers":
        """The answers of several batches."""
        return cls(
            torch.cat([part.labels for part in parts]),
            torch.cat([part.predicted for part in parts]),
            torch.cat([part.ranks for part in parts]),
        )


def single_label(answers: Answers, classes: Sequence[str], prefix: str = PREFIX) -> Classification:
    """The measures of a classifier that gives each image one class."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    _check_some(len(answers.labels))
    numbers = range(len(classes))
    truth, predicted = answers.labels.numpy(), answers.predicted.numpy()
    confusion = confusion_matrix(truth, predicted, labels=numbers).astype(np.int64)
    precision, recall, f1, images = precision_recall_fscore_support(
        truth, predicted, labels=numbers, zero_division=np.nan
    )
    rows = []
    for number, name in enumerate(classes):
        wrong = confusion[number].copy()
        wrong[number] = 0
        most = int(wrong.argmax())
        rows.append(
            ClassRow(
                name,
                int(images[number]),
                _percent(recall[number]),
                _percent(precision[number]),
                _percent(f1[number]),
                confused_with=classes[most] if wrong[most] else "",
                confused=int(wrong[most]),
            )
        )
    seen = [row.recall for row in rows if row.recall is not None]
    metrics = [
        Metric(f"{prefix}.top1", _share(answers.ranks < 1), "%", True, title="top-1 accuracy")
    ]
    if len(classes) > 5:
        top5 = _share(answers.ranks < 5)
        metrics.append(Metric(f"{prefix}.top5", top5, "%", True, title="top-5 accuracy"))
    per_class = Metric(
        f"{prefix}.per_class", sum(seen) / len(seen), "%", True, title="mean accuracy per class"
    )
    notes = _left_out(len(classes) - len(seen), "the mean accuracy per class")
    return Classification(tuple(classes), (*metrics, per_class), tuple(rows), confusion, notes)


def multi_label(
    targets: Bool[Tensor, "M C"],
    logits: Float[Tensor, "M C"],
    classes: Sequence[str],
    threshold: float = 0.5,
    prefix: str = PREFIX,
) -> Classification:
    """The measures of a classifier that gives each image any number of classes.

    A class is predicted from the probability `threshold` on.
    """
    from sklearn.metrics import average_precision_score, f1_score, precision_recall_fscore_support

    _check_some(len(targets))
    truth, predicted = targets.numpy(), (logits.sigmoid() >= threshold).numpy()
    if not truth.any():
        raise ValueError("no image has a class")
    rows = []
    # One class at a time: scikit-learn takes a table of one column for a problem of two classes.
    for number, name in enumerate(classes):
        own, said = truth[:, number], predicted[:, number]
        precision, recall, f1, _ = precision_recall_fscore_support(
            own, said, average="binary", zero_division=np.nan
        )
        ranked = average_precision_score(own, logits[:, number].numpy()) if own.any() else math.nan
        rows.append(
            ClassRow(
                name,
                int(own.sum()),
                _percent(recall),
                _percent(precision),
                _percent(f1),
                average_precision=_percent(ranked),
            )
        )
    known = [row for row in rows if row.images]
    mean_ap = sum(row.average_precision or 0.0 for row in known) / len(known)
    macro = sum(row.f1 or 0.0 for row in known) / len(known)
    micro = 100 * float(f1_score(truth.reshape(-1), predicted.reshape(-1), zero_division=0.0))
    metrics = (
        Metric(f"{prefix}.map", mean_ap, "%", True, title="mean average precision"),
        Metric(f"{prefix}.f1", macro, "%", True, title="F1, mean over classes"),
        Metric(f"{prefix}.f1_micro", micro, "%", True, title="F1 over all decisions"),
    )
    notes = _left_out(len(classes) - len(known), "mean average precision and mean F1")
    return Classification(tuple(classes), metrics, tuple(rows), None, notes)


def _left_out(classes: int, means: str) -> tuple[str, ...]:
    if not classes:
        return ()
    are = agree(classes, "class without an image is", "classes without an image are")
    return (f"{classes} {are} left out of {means}",)


def _check_some(images: int) -> None:
    if not images:
        raise ValueError("there are no images to measure a classifier on")


def _percent(share: float) -> float | None:
    return None if math.isnan(share) else 100 * float(share)


def _share(right: Bool[Tensor, "M"]) -> float:
    return 100 * float(right.double().mean())
