"""Curves of runs as a figure of small panels, by matplotlib."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attmask import atomic
from attmask.curves.groups import Band
from attmask.errors import UserError
from attmask.evaluation.reporting.plot import COLOURS, FAINT, INK, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg", ".pdf")
_PANEL_INCHES = (4.6, 2.9)
_DASHES: tuple[object, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
_MOST_LETTERS = 44
_MOST_POINTS = 600
_MARGIN = 0.02  # left and right of the curves


@dataclass(frozen=True)
class Panel:
    """One metric: a band for each group by its name, and lines to compare with."""

    title: str
    bands: Mapping[str, Band]
    levels: Mapping[str, float]


def check_format(file: Path) -> None:
    """Raise an error for a file that cannot hold a figure."""
    if file.suffix.lower() not in FORMATS:
        raise UserError(f"{file} has no known format; use a name that ends in .png, .svg or .pdf")


def draw_panels(panels: Sequence[Panel], names: Sequence[str], file: Path, *, across: str) -> Path:
    """Write a figure atomically; the legend of all groups stands above the panels."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    cols = 1 if len(panels) == 1 else 2 if len(panels) <= 4 else 3
    rows = math.ceil(len(panels) / cols)
    width, height = (2 if len(panels) == 1 else 1) * _PANEL_INCHES[0], _PANEL_INCHES[1]
    lines = math.ceil(len(names) / (2 * cols)) if len(names) > 1 else 0
    top = 0.25 + 0.24 * lines
    total = rows * height * (1.5 if len(panels) == 1 else 1) + top
    engine = ConstrainedLayoutEngine(h_pad=0.1, w_pad=0.12, rect=(0, 0, 1, 1 - top / total))
    figure = Figure(figsize=(cols * width, total), facecolor=PAPER, layout=engine)
    axes = np.atleast_1d(figure.subplots(rows, cols)).flatten()
    end = max((b.places[-1] for p in panels for b in p.bands.values()), default=0.0) or 1.0
    for panel, each in zip(panels, axes, strict=False):
        _draw(each, panel, names, across)
        each.set_xlim(-_MARGIN * end, (1 + _MARGIN) * end)
    for each in axes[len(panels) :]:
        each.set_visible(False)
    if len(names) > 1:
        handles = [
            axes[0].plot([], [], **_look(i), label=shortened(n))[0] for i, n in enumerate(names)
        ]
        legend = figure.legend(
            handles=handles,
            loc="upper center",
            ncols=2 * cols,
            frameon=False,
            fontsize=9,
            labelcolor=INK,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    try:
        with atomic.file(file) as part:
            figure.savefig(part, format=file.suffix[1:].lower(), dpi=160, facecolor=PAPER)
    except OSError as fault:
        raise UserError(
            f"cannot write {file}: {fault.strerror or fault}; choose another --out"
        ) from fault
    return file


def _look(number: int) -> dict[str, Any]:
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": _DASHES[number // len(COLOURS) % len(_DASHES)],
        "linewidth": 1.8,
    }


def _draw(axes: "Axes", panel: Panel, names: Sequence[str], across: str) -> None:
    for number, name in enumerate(names):
        if (band := panel.bands.get(name)) is None:
            continue
        kept = thinned(band.mean)
        look = _look(number)
        marker: dict[str, Any] = {"marker": "o", "markersize": 3.2} if len(kept) <= 40 else {}
        axes.plot(band.places[kept], band.mean[kept], **look, **marker, zorder=3)
        if not np.array_equal(band.low, band.high):
            axes.fill_between(
                band.places, band.low, band.high, color=look["color"], alpha=0.16, linewidth=0
            )
    for name, level in panel.levels.items():
        axes.axhline(level, color=INK, linewidth=0.9, linestyle=(0, (2, 3)), zorder=1)
        axes.annotate(
            name,
            (1, level),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=8,
            color=INK,
        )
    axes.set_title(shortened(panel.title, 52), loc="left", color=INK, fontsize=10, parse_math=False)
    axes.set_xlabel(across, color=INK, fontsize=9)
    axes.set_facecolor(PAPER)
    axes.grid(axis="y", color=FAINT, linewidth=0.9, zorder=0)
    axes.tick_params(length=0, labelcolor=INK, labelsize=8.5)
    axes.margins(y=0.12)
    for side, line in axes.spines.items():
        line.set_visible(side == "bottom")
        line.set_color(INK)


def thinned(values: np.ndarray, most: int = _MOST_POINTS) -> np.ndarray:
    """Indices of at most so many values that keep the lowest and the highest of each stretch."""
    if len(values) <= most:
        return np.arange(len(values))
    edges = np.linspace(0, len(values), most // 2 + 1).astype(int)
    chosen = {0, len(values) - 1}
    for begin, end in pairwise(edges):
        stretch = values[begin:end]
        chosen |= {begin + int(np.argmin(stretch)), begin + int(np.argmax(stretch))}
    return np.array(sorted(chosen))


def shortened(name: str, most: int = _MOST_LETTERS) -> str:
    """A name in one line, cut in the middle if it is long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return line if len(line) <= most else f"{line[: most // 2]}…{line[-(most // 2 - 1) :]}"
