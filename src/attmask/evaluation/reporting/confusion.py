"""Confusion matrices as a picture, readable from two classes to some hundreds."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Int64

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.reporting.plot import INK, PAPER
from attmask.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From paper to ink through the rose of the attention maps: always darker, so that it also holds in
# grey and for colour-blind readers.
_SHADES = (PAPER, "#f3b4c3", "#d3275b", "#6d1b57", "#241036")
_GAMMA = 0.5  # small confusions are visible beside a diagonal of nearly 100 %
_TICKS = (0, 1, 5, 10, 25, 50, 75, 100)
_NUMBERED = 40  # classes up to which each cell has its number
_NAMED = 320  # classes up to which each row has its name
_ALL_SIDES = 60  # classes up to which names stand on two sides
_LONGEST = 24  # characters of a name
_DARK = 18  # per cent from which numbers are light
_GUIDE = "#c9c9c4"
_LINE_INCHES = 5.0  # of the line that explains rows and columns
_SCALE_INCHES = 1.2  # beside the matrix, with the gap to the next


@dataclass(frozen=True, eq=False)
class Confusion:
    """The confusion matrix of one network: images by true (row) and predicted class."""

    title: str
    classes: Sequence[str]
    images: Int64[np.ndarray, "C C"]

    def used(self) -> "Confusion":
        """Without the classes that no image has and none was taken for."""
        kept = np.flatnonzero(self.images.any(axis=0) | self.images.any(axis=1))
        names = [self.classes[number] for number in kept.tolist()]
        return Confusion(self.title, names, self.images[np.ix_(kept, kept)])

    @property
    def per_cent(self) -> Float[np.ndarray, "C C"]:
        """Each row as shares of its images; zero for a class without an image."""
        shares: np.ndarray = self.images / self.images.sum(axis=1, keepdims=True).clip(min=1)
        return 100 * shares


def draw_confusions(matrices: Sequence[Confusion], file: Path) -> Path:
    """Write a PNG of one or several confusion matrices side by side, atomically."""
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise UserError(
            "plots need matplotlib, which is missing; run: pip install matplotlib"
        ) from fault
    if not matrices or not all(matrix.images.any() for matrix in matrices):
        raise ValueError("there are no images in a confusion matrix")
    panels = [_Panel.of(matrix.used()) for matrix in matrices]
    width = sum(panel.width for panel in panels)
    height = max(panel.side for panel in panels)
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    left = 0.0
    for panel in panels:
        share = panel.side / height
        begin = (left + panel.names) / width
        _draw(figure, figure.add_axes((begin, 1 - share, panel.side / width, share)), panel)
        left += panel.width
    try:
        with atomic.file(file) as part:
            figure.savefig(
                part,
                format="png",
                dpi=200 if all(panel.has_numbers for panel in panels) else 110,
                facecolor=PAPER,
                bbox_inches="tight",  # names, title and scale lie around the axes
                pad_inches=0.25,
            )
    except OSError as fault:
        raise UserError(
            f"cannot write the plot {file}: {fault.strerror or fault}; make room, or choose "
            "another folder"
        ) from fault
    return file


@dataclass(frozen=True, eq=False)
class _Panel:
    """A matrix with its measures on paper, in inches."""

    matrix: Confusion
    rows: Sequence[str]
    columns: Sequence[str]
    cell: float

    @classmethod
    def of(cls, matrix: Confusion) -> "_Panel":
        """Cells as small as their content allows; a matrix of a thousand classes has no names."""
        count = len(matrix.classes)
        columns = [_shortened(name) for name in matrix.classes] if count <= _NAMED else []
        images = matrix.images.sum(axis=1).tolist()
        rows = [f"{name}  ({n:,})" for name, n in zip(columns, images, strict=False)]
        if count <= _NUMBERED:
            cell = max(0.28, min(0.8, 6.0 / count))
        else:
            cell = 0.14 if columns else max(0.012, 24.0 / count)
        return cls(matrix, rows, columns, cell)

    @property
    def side(self) -> float:
        """Of the square of all cells."""
        return self.cell * len(self.matrix.classes)

    @property
    def width(self) -> float:
        """From the names on the left to the next matrix."""
        around = self.names * self.has_names_around
        return self.names + max(self.side, 3.0) + around + _SCALE_INCHES

    @property
    def font(self) -> float:
        """Points of the names."""
        return min(9.5, 72 * self.cell * 0.68)

    @property
    def names(self) -> float:
        """The length of the longest name."""
        return 0.57 * self.font / 72 * max(map(len, self.rows), default=6)

    @property
    def has_numbers(self) -> bool:
        """Whether each cell has its number."""
        return len(self.matrix.classes) <= _NUMBERED

    @property
    def has_names_around(self) -> bool:
        """Whether names stand on all four sides, because the others are far away."""
        return bool(self.columns) and len(self.columns) > _ALL_SIDES


def _draw(figure: "Figure", axes: "Axes", panel: _Panel) -> None:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    per_cent = panel.matrix.per_cent
    shades = LinearSegmentedColormap.from_list("confusion", _SHADES)
    image = axes.imshow(
        per_cent,
        cmap=shades,
        norm=PowerNorm(_GAMMA, vmin=0, vmax=100),
        aspect="auto",
        interpolation="nearest",
    )
    for line in axes.spines.values():
        line.set_color(INK)
        line.set_linewidth(0.6)
    _name_classes(axes, panel)
    _draw_grid(axes, panel)
    if panel.has_numbers:
        _number_cells(axes, per_cent, min(10.0, 72 * panel.cell * 0.36))
    _head(axes, panel)
    beside = 0.2 + panel.names * panel.has_names_around
    tall = min(1.0, 4.0 / panel.side)
    scale = axes.inset_axes((1 + beside / panel.side, 1 - tall, 0.15 / panel.side, tall))
    figure.colorbar(image, cax=scale, ticks=_TICKS).outline.set_linewidth(0.4)
    scale.set_yticklabels([f"{tick} %" for tick in _TICKS])
    scale.tick_params(length=0, labelcolor=INK, labelsize=8)
    scale.minorticks_off()


def _name_classes(axes: "Axes", panel: _Panel) -> None:
    count = len(panel.matrix.classes)
    axes.tick_params(length=0, labelcolor=INK, labelsize=panel.font, pad=3)
    if not panel.columns:
        axes.tick_params(labelsize=10)
        axes.set_xlabel("predicted class, in order", color=INK, fontsize=10.5)
        axes.set_ylabel("true class, in order", color=INK, fontsize=10.5)
        return
    around = panel.has_names_around
    axes.tick_params(labelright=around, labeltop=around)
    axes.set_yticks(range(count), panel.rows, parse_math=False)
    axes.set_xticks(range(count), panel.columns, parse_math=False, rotation=90)
    if all(0.57 * panel.font / 72 * len(name) < panel.cell for name in panel.columns):
        axes.tick_params(axis="x", rotation=0)


def _draw_grid(axes: "Axes", panel: _Panel) -> None:
    """Lines between the cells, or between tens of classes to follow with the eye."""
    count = len(panel.matrix.classes)
    every, colour = (1, PAPER) if panel.has_numbers else (10, _GUIDE)
    if not panel.columns:
        return
    edges = np.arange(every, count, every) - 0.5
    axes.hlines(edges, -0.5, count - 0.5, color=colour, linewidth=0.5)
    axes.vlines(edges, -0.5, count - 0.5, color=colour, linewidth=0.5)


def _number_cells(axes: "Axes", per_cent: Float[np.ndarray, "C C"], font: float) -> None:
    for row, column in np.argwhere(per_cent > 0).tolist():
        value = per_cent[row, column]
        axes.text(
            column,
            row,
            f"{value:.0f}" if value >= 0.5 else "<1",
            ha="center",
            va="center",
            fontsize=font,
            color=PAPER if value > _DARK else INK,
        )


def _head(axes: "Axes", panel: _Panel) -> None:
    """The name of the network, and what the matrix shows."""
    images, right = int(panel.matrix.images.sum()), int(np.trace(panel.matrix.images))
    lines = ["rows: true class (images)", "columns: predicted class", "per cent of each row"]
    told = ["; ".join(lines)] if panel.side > _LINE_INCHES else lines
    told = [f"{100 * right / images:.1f} % of {counted(images, 'image')} right", *told]
    above = 72 * panel.names * panel.has_names_around + 9
    for text, height, font, weight in (
        ("\n".join(told), above, 9.5, "normal"),
        (panel.matrix.title, above + 11.6 * len(told) + 6, 13, "bold"),
    ):
        axes.annotate(
            text,
            xy=(0, 1),
            xycoords="axes fraction",
            textcoords="offset points",
            xytext=(0, height),
            va="bottom",
            fontsize=font,
            fontweight=weight,
            color=INK,
            parse_math=False,
            annotation_clip=False,
        )


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
