"""Line plots: one curve per network, labelled at its end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from attmask import atomic
from attmask.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Sequence[tuple[float, float]]
"""Points (x, y) from left to right."""

PAPER, INK, FAINT = "#fafaf8", "#28282c", "#dededa"
# Colour-blind safe; the first is the rose of the attention maps.
COLOURS = ("#d3275b", "#0072b2", "#e69f00", "#009e73", "#331552", "#56b4e9", "#d55e00", "#cc79a7")
_INCHES = (7.2, 4.5)
_DOTS_PER_INCH = 200
_APART = 0.052  # minimum distance of two labels, as a share of the height


def draw_curves(
    curves: Mapping[str, Curve],
    file: Path,
    *,
    title: str,
    across: str,
    up: str,
) -> Path:
    """Write a PNG of named curves atomically."""
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise UserError(
            "plots need matplotlib, which is missing; run: pip install matplotlib"
        ) from fault
    if not curves or not all(curves.values()):
        raise ValueError("there are no points to plot")
    figure = Figure(figsize=_INCHES, facecolor=PAPER)
    axes = figure.add_axes((0.085, 0.13, 0.66 if len(curves) > 1 else 0.88, 0.72))
    _frame(axes, curves)
    for number, points in enumerate(curves.values()):
        colour = COLOURS[number % len(COLOURS)]
        x, y = zip(*points, strict=True)
        dash = ("-", (0, (5, 2)), (0, (1.5, 1.5)))[number // len(COLOURS) % 3]
        axes.plot(x, y, color=colour, linewidth=2.2, linestyle=dash, zorder=3)
        axes.plot(x, y, "o", color=colour, markersize=6, markeredgecolor=PAPER, zorder=4)
    if len(curves) > 1:
        _name_ends(axes, curves)
    else:
        _number_points(axes, next(iter(curves.values())))
    axes.set_xlabel(across, color=INK, fontsize=10.5, labelpad=7)
    figure.text(
        0.03, 0.94, title, color=INK, fontsize=13, fontweight="bold", va="center", parse_math=False
    )
    figure.text(0.03, 0.885, up, color=INK, fontsize=10.5, va="center", parse_math=False)
    try:
        with atomic.file(file) as part:
            figure.savefig(part, format="png", dpi=_DOTS_PER_INCH, facecolor=PAPER)
    except OSError as fault:
        raise UserError(
            f"cannot write the plot {file}: {fault.strerror or fault}; make room, or choose "
            "another folder with --cache"
        ) from fault
    return file


def _frame(axes: "Axes", curves: Mapping[str, Curve]) -> None:
    """Set the axes from zero to slightly above the highest point, with horizontal grid lines."""
    highest = max(y for points in curves.values() for _, y in points)
    ticks = sorted({x for points in curves.values() for x, _ in points})
    room = 0.03 * max(ticks[-1] - ticks[0], 1e-9)
    axes.set_xlim(ticks[0] - room, ticks[-1] + room)
    axes.set_ylim(0, 1.12 * highest or 1.0)
    axes.set_xticks(ticks if len(ticks) <= 12 else ticks[:: -(-len(ticks) // 12)])
    axes.set_facecolor(PAPER)
    axes.grid(axis="y", color=FAINT, linewidth=0.9, zorder=0)
    axes.tick_params(length=0, labelcolor=INK, labelsize=9.5, pad=6)
    for side, line in axes.spines.items():
        line.set_visible(side == "bottom")
        line.set_color(INK)


def _number_points(axes: "Axes", points: Curve) -> None:
    for x, y in points:
        axes.annotate(
            f"{y:.1f}",
            (x, y),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            color=INK,
            fontsize=9,
        )


def _name_ends(axes: "Axes", curves: Mapping[str, Curve]) -> None:
    """Label each curve at its end."""
    _, top = axes.get_ylim()
    ends = sorted((points[-1][1] / top, number) for number, points in enumerate(curves.values()))
    names = list(curves)
    for (_, number), height in zip(ends, moved_apart([y for y, _ in ends]), strict=True):
        axes.text(
            1.02,
            height,
            _shortened(names[number]),
            transform=axes.transAxes,
            parse_math=False,
            va="center",
            color=COLOURS[number % len(COLOURS)],
            fontsize=9.5,
            fontweight="bold",
        )


def moved_apart(heights: Sequence[float], apart: float = _APART) -> list[float]:
    """Move ascending heights as little as possible so that neighbours are at least `apart`."""
    # Without i * apart, the heights must only not decrease: isotonic regression by pooling.
    groups: list[list[float]] = []
    for i, height in enumerate(heights):
        groups.append([height - i * apart])
        while len(groups) > 1 and mean(groups[-2]) > mean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    level = [mean(group) for group in groups for _ in group]
    return [y + i * apart for i, y in enumerate(level)]


def _shortened(name: str, most: int = 20) -> str:
    return name if len(name) <= most else f"…{name[1 - most :]}"
