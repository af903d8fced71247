"""Top-1 and top-5 accuracy, also of several classifiers on the same features."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.forward import Features

_NUMBERS_AT_ONCE = 2**24  # 64 MB of fp32, for any number of classes


@dataclass(frozen=True)
class Accuracy:
    """The share of images whose class is ranked first, or among the first five, in per cent."""

    top1: float
    top5: float


def accuracy(classifier: LinearClassifier, features: Features) -> Accuracy:
    """Top-1 and top-5 accuracy; ties in logits go to the lower class."""
    return accuracies([(classifier.weight, classifier.bias)], features)[0]


def accuracies(
    classifiers: Sequence[tuple[Float[Tensor, "C W"], Float[Tensor, "C"]]],
    features: Features,
    rows: Int[Tensor, "m"] | None = None,
) -> list[Accuracy]:
    """The accuracy of each pair of weight and bias, on all features or on some rows of them."""
    if not classifiers:
        return []
    classes, width = classifiers[0][0].shape
    labels = _checked_labels(features, width, classes)
    if not all(is_finite(weight, bias) for weight, bias in classifiers):
        raise ValueError("a classifier has weights that are not finite")
    rows = torch.arange(len(labels)) if rows is None else rows
    if len(rows) == 0:
        raise UserError("there are no test images for the classifier; give at least one")
    first, five = ([0] * len(classifiers) for _ in range(2))
    for some in rows.split(max(1, _NUMBERS_AT_ONCE // max(classes, width))):
        device = classifiers[0][0].device
        vectors, wanted = features.vectors[some].float().to(device), labels[some].to(device)
        for index, (weight, bias) in enumerate(classifiers):
            rank = ranks(torch.addmm(bias, vectors, weight.T), wanted)
            first[index] += int((rank < 1).sum())
            five[index] += int((rank < 5).sum())
    return [
        Accuracy(100 * one / len(rows), 100 * of_five / len(rows))
        for one, of_five in zip(first, five, strict=True)
    ]


def ranks(logits: Float[Tensor, "B C"], labels: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """The rank of the true class from 0; ties go to the lower class."""
    own = logits.gather(1, labels[:, None])
    before = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    return ((logits > own) | ((logits == own) & before)).sum(dim=1)


def is_finite(weight: Float[Tensor, "C W"], bias: Float[Tensor, "C"]) -> bool:
    """Whether all weights are finite."""
    return bool(weight.isfinite().all() and bias.isfinite().all())


def _checked_labels(features: Features, width: int, classes: int) -> Int[Tensor, "M"]:
    labels = features.labels
    if labels is None:
        raise UserError("the test images have no labels; use one folder per class")
    if len(labels) == 0:
        raise UserError("there are no test images for the classifier; give at least one")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UserError(
            f"the test images have labels {int(labels.min())} to {int(labels.max())}, but the "
            f"classifier has {classes} classes; use one that was trained on these classes"
        )
    if features.vectors.shape[1] != width:
        raise UserError(
            f"features have width {features.vectors.shape[1]}, but the classifier was trained on "
            f"width {width}; use the same blocks of the same network"
        )
    return labels
