"""Pictures of detections: the true objects of images beside the detected ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt8

from attmask import atomic
from attmask.data.coco import Annotated
from attmask.errors import UserError
from attmask.evaluation.metrics.detected import SURE, Found
from attmask.evaluation.reporting.overlay import (
    Drawn,
    Rectangle,
    colour_of,
    draw_over,
    resized_rgb,
    shortened,
)
from attmask.evaluation.reporting.plot import INK, PAPER
from attmask.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL = 4.2  # inches, the width of a picture
_TALLEST = 1.2  # times its width
_GAP, _MARGIN, _CAPTION, _HEAD = 0.12, 0.3, 0.34, 0.85  # inches
_DOTS_PER_INCH = 130
_FINER = 2  # pictures are drawn larger and shown smaller, with smooth lines
_LONGEST_NAME = 60  # characters of an image


@dataclass(frozen=True, eq=False)
class DetectedExample:
    """An image with its objects and what was detected, at its own size."""

    name: str
    pixels: UInt8[np.ndarray, "H W C"]
    truth: Annotated
    found: Found
    f1: float
    """Of the sure detections, in per cent."""


def draw_objects(
    examples: Sequence[DetectedExample], names: Sequence[str], file: Path, *, title: str
) -> Path:
    """Write a PNG of examples, one below the other, atomically."""
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise UserError(
            "plots need matplotlib, which is missing; run: pip install matplotlib"
        ) from fault
    if not examples:
        raise ValueError("there are no images to draw")
    sizes = [_shown_size(example) for example in examples]
    width = 2 * _MARGIN + 2 * _PANEL + _GAP
    height = _HEAD + sum(tall + _CAPTION for _, tall in sizes) + 1.5 * _MARGIN
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    _write_head(figure, title, len(examples))
    top = height - _HEAD - _MARGIN
    for example, size in zip(examples, sizes, strict=True):
        _draw_row(figure, example, names, top, size)
        top -= size[1] + _CAPTION
    try:
        with atomic.file(file) as part:
            figure.savefig(part, format="png", dpi=_DOTS_PER_INCH, facecolor=PAPER)
    except OSError as fault:
        raise UserError(
            f"cannot write the picture {file}: {fault.strerror or fault}; make room, or choose "
            "another folder"
        ) from fault
    return file


def found_objects(found: Found, names: Sequence[str], least: float = SURE) -> list[Drawn]:
    """The detections from a score on, labelled with their class and score."""
    return [
        Drawn(
            _rectangle(found.boxes[row]),
            f"{shortened(names[label], 22)} {score:.2f}",
            colour_of(label),
            None if found.rles is None else found.rles[row],
        )
        for row, (label, score) in enumerate(
            zip(found.labels.tolist(), found.scores.tolist(), strict=True)
        )
        if score >= least
    ]


def true_objects(truth: Annotated, names: Sequence[str]) -> list[Drawn]:
    """The objects of an image; those without a segmentation are only boxes."""
    rles = truth.rles()
    return [
        Drawn(
            _rectangle(truth.boxes[row]),
            f"{names[label]} (crowd)" if truth.is_crowd[row] else names[label],
            colour_of(label),
            None if truth.segmentations[row] is None else rles[row],
        )
        for row, label in enumerate(truth.labels.tolist())
    ]


def _write_head(figure: "Figure", title: str, count: int) -> None:
    width, height = figure.get_size_inches()
    left = _MARGIN / width
    figure.text(
        left,
        1 - 0.3 / height,
        shortened(title, 70),
        color=INK,
        fontsize=13,
        fontweight="bold",
        va="center",
        parse_math=False,
    )
    told = f"{counted(count, 'image')} with the lowest F1, the lowest first"
    figure.text(left, 1 - 0.58 / height, told, color=INK, fontsize=10, va="center")
    for number, name in enumerate(("truth", f"detections with a score of at least {SURE:g}")):
        figure.text(
            (_MARGIN + number * (_PANEL + _GAP) + _PANEL / 2) / width,
            1 - (_HEAD + 0.1) / height,
            name,
            color=INK,
            fontsize=10.5,
            ha="center",
            va="center",
        )


def _draw_row(
    figure: "Figure",
    example: DetectedExample,
    names: Sequence[str],
    top: float,
    size: tuple[float, float],
) -> None:
    """One example; its F1, its name and what was counted stand below it."""
    width, height = figure.get_size_inches()
    wide, tall = size
    dots = _DOTS_PER_INCH * _FINER
    pixels_wh = round(wide * dots), round(tall * dots)
    picture = resized_rgb(example.pixels, pixels_wh)
    found = found_objects(example.found, names)
    for number, objects in enumerate((true_objects(example.truth, names), found)):
        left = _MARGIN + number * (_PANEL + _GAP) + (_PANEL - wide) / 2
        box = (left / width, (top - tall) / height, wide / width, tall / height)
        axes = figure.add_axes(box)
        drawn = draw_over(picture, objects, example.truth.size_wh)
        axes.imshow(drawn, aspect="auto", interpolation="antialiased")
        axes.set_axis_off()
    wanted = int((~example.truth.is_crowd).sum())
    figure.text(
        _MARGIN / width,
        (top - tall - _CAPTION * 0.4) / height,
        f"F1 {example.f1:.1f} %   {_ending(example.name)}   "
        f"({counted(wanted, 'object')}, {counted(len(found), 'detection')})",
        color=INK,
        fontsize=9,
        va="center",
        parse_math=False,
    )


def _shown_size(example: DetectedExample) -> tuple[float, float]:
    """Width and height in inches: as wide as a panel, unless that would be too tall."""
    rows, columns = example.pixels.shape[:2]
    wide = _PANEL * min(1.0, _TALLEST * columns / rows)
    return wide, wide * rows / columns


def _rectangle(box: np.ndarray) -> Rectangle:
    x1, y1, x2, y2 = box.tolist()
    return x1, y1, x2, y2


def _ending(name: str) -> str:
    """The end of a long name, which tells images apart."""
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"
