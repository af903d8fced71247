"""The files of a classification: a table of the classes and the confusion matrix.

FOLDER/per_class.csv    images, recall, precision, F1 and the most frequent confusion of each class
       confusion.csv    the number of images by true class (row) and predicted class (column)
       confusion.png    the same as a picture, each row in per cent
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.metrics.classification import (
    PREFIX,
    Answers,
    Classification,
    multi_label,
    single_label,
)
from attmask.evaluation.reporting.confusion import Confusion, draw_confusions
from attmask.metric import Metric

PER_CLASS, CONFUSION, PICTURE = "per_class.csv", "confusion.csv", "confusion.png"
_COLUMNS = ("class", "images", "recall", "precision", "f1")
_TRUE = "true class"


def write_classification(
    folder: Path,
    labels: Int[Tensor, "M"] | Bool[Tensor, "M C"],
    logits: Float[Tensor, "M C"],
    classes: Sequence[str],
    *,
    threshold: float = 0.5,
    prefix: str = PREFIX,
    title: str = "Confusion matrix",
) -> tuple[Metric, ...]:
    """Measure a classifier on labelled images, write the files, and return the metrics.

    Labels are numbers of classes; a table of true and false for each image and class means that
    the classifier is multi-label. Its classes are predicted from the probability `threshold` on.
    """
    if labels.ndim == 2:
        found = multi_label(labels, logits, classes, threshold, prefix)
    else:
        found = single_label(Answers.of(labels, logits), classes, prefix)
    write_files(folder, found, title)
    return found.metrics


def write_files(folder: Path, found: Classification, title: str) -> tuple[Path, ...]:
    """Write the files of a classification; multi-label has no confusion matrix."""
    written = [folder / PER_CLASS]
    write_text(folder / PER_CLASS, per_class_csv(found))
    if found.confusion is not None:
        write_text(folder / CONFUSION, confusion_csv(found))
        draw_confusions([Confusion(title, found.classes, found.confusion)], folder / PICTURE)
        written += [folder / CONFUSION, folder / PICTURE]
    return tuple(written)


def per_class_csv(found: Classification) -> str:
    """One line per class; cells of undefined values are empty."""
    is_multi_label = found.confusion is None
    more = ("average_precision",) if is_multi_label else ("confused_with", "confused_images")
    lines: list[list[object]] = [[*_COLUMNS, *more]]
    for row in found.rows:
        last: list[object] = (
            [_cell(row.average_precision)]
            if is_multi_label
            else [row.confused_with, row.confused or ""]
        )
        shares = [_cell(share) for share in (row.recall, row.precision, row.f1)]
        lines.append([row.name, row.images, *shares, *last])
    return as_csv(lines)


def confusion_csv(found: Classification) -> str:
    """The confusion matrix in numbers of images."""
    assert found.confusion is not None
    rows = zip(found.classes, found.confusion.tolist(), strict=True)
    return as_csv([[_TRUE, *found.classes], *([name, *images] for name, images in rows)])


def as_details(found: Classification) -> dict[str, Any]:
    """The table of the classes and the confusion matrix as JSON, for a card."""
    details: dict[str, Any] = {"classes": [asdict(row) for row in found.rows]}
    if found.confusion is not None:
        cells = np.argwhere(found.confusion)
        images = found.confusion[cells[:, 0], cells[:, 1]]
        details["confusion"] = np.column_stack([cells, images]).tolist()
    return details


def confusion_of(title: str, details: Mapping[str, Any]) -> Confusion:
    """The confusion matrix of a card; UserError where there is none."""
    if "confusion" not in details:
        raise UserError(
            f"{title} has no confusion matrix, because an image may have several classes; "
            "use .json, .md, .csv or .tex"
        )
    classes = [row["name"] for row in details["classes"]]
    matrix = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for true, predicted, images in details["confusion"]:
        matrix[true, predicted] = images
    return Confusion(title, classes, matrix)


def _cell(share: float | None) -> str:
    return "" if share is None else f"{share:.2f}"


def as_csv(lines: Sequence[Sequence[object]]) -> str:
    """Lines of cells as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def write_text(file: Path, text: str) -> None:
    """Write a file atomically; an error says what to do."""
    try:
        atomic.write(file, text)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(
            f"cannot write {file}: {why}; make room, or choose another folder"
        ) from fault
