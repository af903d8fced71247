"""The files of a segmentation: a table of the classes, and a picture of the worst images.

FOLDER/per_class.csv       pixels, IoU, accuracy and the most frequent confusion of each class
       predictions.png     the worst images: the image, its true mask, its predicted mask
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attmask.evaluation.metrics.segmentation import Segmentation
from attmask.evaluation.reporting.classification import as_csv, write_text
from attmask.evaluation.reporting.masks import SegmentedExample, draw_masks

PER_CLASS, PICTURE = "per_class.csv", "predictions.png"
SHOWN_IMAGES = 6
"""The number of examples in a picture that can still be read."""
_COLUMNS = (
    "class",
    "share_of_pixels",
    "iou",
    "accuracy",
    "confused_with",
    "confused_share",
)
_WORST = 20  # images named on a card


def write_segmentation(
    folder: Path, measured: Segmentation, examples: Sequence[SegmentedExample], title: str
) -> tuple[Path, ...]:
    """Write the table of the classes, and the picture if there are examples."""
    write_text(folder / PER_CLASS, per_class_csv(measured))
    if not examples:
        return (folder / PER_CLASS,)
    draw_masks(examples, measured.classes, folder / PICTURE, title=title)
    return folder / PER_CLASS, folder / PICTURE


def per_class_csv(measured: Segmentation) -> str:
    """One line per class, in per cent; cells of undefined values are empty."""
    lines: list[list[object]] = [[*_COLUMNS]]
    for row in measured.rows:
        shares = (row.share, row.iou, row.accuracy)
        confused = f"{row.confused:.2f}" if row.confused_with else ""
        lines.append([row.name, *map(_cell, shares), row.confused_with, confused])
    return as_csv(lines)


def as_details(measured: Segmentation, name_of: Callable[[int], str]) -> dict[str, Any]:
    """The table of the classes and the worst images as JSON, for a card."""
    worst = measured.worst_first[:_WORST]
    return {
        "classes": [asdict(row) for row in measured.rows],
        "worst": [{"image": name_of(image), "iou": iou} for image, iou in worst],
    }


def _cell(share: float | None) -> str:
    return "" if share is None else f"{share:.2f}"
