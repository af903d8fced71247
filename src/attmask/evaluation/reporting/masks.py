"""Pictures of segmentations: true and predicted masks side by side, in colours of the classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int, UInt8

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.reporting.plot import INK, PAPER
from attmask.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colour-blind safe: Okabe and Ito's colours, then the muted ones of Paul Tol.
COLOURS = (
    *("#0072b2", "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#f0e442", "#cc79a7", "#332288"),
    *("#882255", "#000000", "#117733", "#ddcc77", "#aa4499", "#999933", "#44aa99", "#88ccee"),
)
_NO_CLASS, _OTHER_CLASS = "#d9d9d6", "#5b5b60"
_COLUMNS = ("image", "truth", "prediction")
_PANEL = 2.6  # inches, the width of a picture
_TALLEST = 1.4  # times its width
_GAP, _MARGIN, _CAPTION, _LINE = 0.1, 0.3, 0.28, 0.25  # inches
_HEAD = 0.85
_NAMES_PER_LINE = 4
_LONGEST = 22  # characters of a class in the legend
_LONGEST_NAME = 70  # characters of an image
_MOST_PIXELS = 640  # along a side; more would not be seen
_DOTS_PER_INCH = 140


@dataclass(frozen=True, eq=False)
class SegmentedExample:
    """An image with its true and its predicted classes; pixels without a class are below 0."""

    name: str
    pixels: UInt8[np.ndarray, "H W C"]
    truth: Int[np.ndarray, "H W"]
    predicted: Int[np.ndarray, "H W"]
    iou: float
    """The mean IoU of this image, in per cent."""


def draw_masks(
    examples: Sequence[SegmentedExample], classes: Sequence[str], file: Path, *, title: str
) -> Path:
    """Write a PNG of examples, one below the other, with a legend of their classes, atomically."""
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise UserError(
            "plots need matplotlib, which is missing; run: pip install matplotlib"
        ) from fault
    if not examples:
        raise ValueError("there are no images to draw")
    colours = _colours_of(examples, len(classes))
    named = [(_shortened(classes[number], _LONGEST), colours[number]) for number in colours]
    named.append(("no class", _NO_CLASS))
    if len(_by_pixels(examples)) > len(colours):
        named.append(("other classes", _OTHER_CLASS))
    heights = [_height(example) for example in examples]
    lines = -(-len(named) // _NAMES_PER_LINE)
    width = 2 * _MARGIN + 3 * _PANEL + 2 * _GAP
    height = _HEAD + sum(heights) + len(heights) * _CAPTION + lines * _LINE + 2 * _MARGIN
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    table = _table(colours, len(classes))
    _write_head(figure, title, len(examples))
    top = height - _HEAD - _MARGIN
    for example, tall in zip(examples, heights, strict=True):
        _draw_row(figure, example, table, top, tall)
        top -= tall + _CAPTION
    _draw_legend(figure, named, top)
    try:
        with atomic.file(file) as part:
            figure.savefig(part, format="png", dpi=_DOTS_PER_INCH, facecolor=PAPER)
    except OSError as fault:
        raise UserError(
            f"cannot write the picture {file}: {fault.strerror or fault}; make room, or choose "
            "another folder"
        ) from fault
    return file


def _write_head(figure: "Figure", title: str, count: int) -> None:
    width, height = figure.get_size_inches()
    left = _MARGIN / width
    figure.text(
        left,
        1 - 0.3 / height,
        _shortened(title, 60),
        color=INK,
        fontsize=13,
        fontweight="bold",
        va="center",
        parse_math=False,
    )
    told = f"{counted(count, 'image')} with the lowest mean IoU, the lowest first"
    figure.text(left, 1 - 0.58 / height, told, color=INK, fontsize=10, va="center")
    for number, name in enumerate(_COLUMNS):
        centre = _MARGIN + number * (_PANEL + _GAP) + _PANEL / 2
        figure.text(
            centre / width,
            1 - (_HEAD + 0.02) / height,
            name,
            color=INK,
            fontsize=10.5,
            ha="center",
            va="center",
        )


def _draw_row(
    figure: "Figure",
    example: SegmentedExample,
    table: Float[np.ndarray, "colours 3"],
    top: float,
    tall: float,
) -> None:
    """One example; its name and its IoU stand below it."""
    width, height = figure.get_size_inches()
    step = -(-max(example.truth.shape) // _MOST_PIXELS)
    shown = (
        _as_rgb(example.pixels[::step, ::step]),
        *(table[mask[::step, ::step]] for mask in (example.truth, example.predicted)),
    )
    for number, picture in enumerate(shown):
        left = _MARGIN + number * (_PANEL + _GAP)
        box = (left / width, (top - tall) / height, _PANEL / width, tall / height)
        axes = figure.add_axes(box)
        axes.imshow(picture, aspect="auto", interpolation="nearest" if number else "antialiased")
        axes.set_axis_off()
    figure.text(
        _MARGIN / width,
        (top - tall - _CAPTION * 0.42) / height,
        f"{example.iou:.1f} % mean IoU   {_shortened(example.name, _LONGEST_NAME)}",
        color=INK,
        fontsize=8.5,
        va="center",
        parse_math=False,
    )


def _draw_legend(figure: "Figure", named: Sequence[tuple[str, str]], top: float) -> None:
    from matplotlib.patches import Rectangle

    width, height = figure.get_size_inches()
    step = (width - 2 * _MARGIN) / _NAMES_PER_LINE
    for number, (name, colour) in enumerate(named):
        left = _MARGIN + number % _NAMES_PER_LINE * step
        centre = top - (number // _NAMES_PER_LINE + 0.5) * _LINE
        box = ((left / width, (centre - 0.07) / height), 0.2 / width, 0.14 / height)
        figure.add_artist(Rectangle(*box, color=colour, transform=figure.transFigure))
        figure.text(
            (left + 0.27) / width,
            centre / height,
            name,
            color=INK,
            fontsize=9,
            va="center",
            parse_math=False,
        )


def _height(example: SegmentedExample) -> float:
    rows, columns = example.truth.shape
    return float(_PANEL * min(_TALLEST, rows / columns))


def _by_pixels(examples: Sequence[SegmentedExample]) -> list[int]:
    """The classes that occur in the masks, the largest first."""
    masks = [m.ravel() for each in examples for m in (each.truth, each.predicted)]
    pixels = np.bincount(np.concatenate([mask[mask >= 0] for mask in masks]))
    return [int(n) for n in np.argsort(-pixels, kind="stable") if pixels[n]]


def _colours_of(examples: Sequence[SegmentedExample], classes: int) -> dict[int, str]:
    """The colour of each class that occurs, in the order of the classes.

    Few classes have the same colours in every picture; of many, the largest have one.
    """
    there = _by_pixels(examples)
    if classes <= len(COLOURS):
        return {number: COLOURS[number] for number in sorted(there)}
    return dict(sorted(zip(there, COLOURS, strict=False)))


def _table(colours: dict[int, str], classes: int) -> Float[np.ndarray, "colours 3"]:
    """A colour for each class, and at the end that of pixels without one, whose label is -1."""
    from matplotlib.colors import to_rgb

    every = [colours.get(number, _OTHER_CLASS) for number in range(classes)]
    return np.array([to_rgb(colour) for colour in (*every, _NO_CLASS)])


def _as_rgb(pixels: UInt8[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "H W 3"]:
    """Three channels to look at: the first ones, or the first one in grey."""
    return pixels[..., :3] if pixels.shape[2] >= 3 else np.repeat(pixels[..., :1], 3, axis=2)


def _shortened(name: str, most: int) -> str:
    return name if len(name) <= most else f"…{name[1 - most :]}"
