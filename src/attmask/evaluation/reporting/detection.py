"""The files of a detection: a table of the classes, and a picture of the worst images.

FOLDER/per_class.csv       objects and average precision of each class, of boxes and of masks
       predictions.png     the worst images: their true objects beside the detected ones
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attmask.evaluation.metrics.detection import Detection
from attmask.evaluation.reporting.classification import as_csv, write_text
from attmask.evaluation.reporting.objects import DetectedExample, draw_objects

PER_CLASS, PICTURE = "per_class.csv", "predictions.png"
SHOWN_IMAGES = 6
"""The number of examples in a picture that can still be read."""
_COLUMNS = ("class", "objects", "box_ap", "box_ap50", "mask_ap", "mask_ap50")
_WORST = 20  # images named on a card


def write_detection(
    folder: Path,
    measured: Detection,
    examples: Sequence[DetectedExample],
    names: Sequence[str],
    *,
    title: str,
) -> tuple[Path, ...]:
    """Write the table of the classes, and the picture if there are examples."""
    write_text(folder / PER_CLASS, per_class_csv(measured))
    if not examples:
        return (folder / PER_CLASS,)
    draw_objects(examples, names, folder / PICTURE, title=title)
    return folder / PER_CLASS, folder / PICTURE


def per_class_csv(measured: Detection) -> str:
    """One line per class, in per cent; cells of undefined values are empty."""
    lines: list[list[object]] = [[*_COLUMNS]]
    for row in measured.rows:
        shares = (row.box_ap, row.box_ap50, row.mask_ap, row.mask_ap50)
        lines.append([row.name, row.objects, *map(_cell, shares)])
    return as_csv(lines)


def as_details(measured: Detection, name_of: Callable[[int], str]) -> dict[str, Any]:
    """The table of the classes and the worst images as JSON, for a card."""
    worst = measured.worst_first[:_WORST]
    return {
        "classes": [asdict(row) for row in measured.rows],
        "worst": [{"image": name_of(image), "f1": measured.f1[image]} for image in worst],
    }


def _cell(share: float | None) -> str:
    return "" if share is None else f"{share:.2f}"
