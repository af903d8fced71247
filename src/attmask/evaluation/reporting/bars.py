"""Bars: one group per class, one bar per network."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.reporting.plot import COLOURS, FAINT, INK, PAPER

_MOST_GROUPS = 40
_BAR, _BETWEEN = 0.17, 0.14  # inches
_LEFT, _WIDE, _HEAD, _FOOT = 2.0, 5.4, 0.75, 0.55  # inches
_LONGEST = 24  # characters
_DOTS_PER_INCH = 160


def draw_bars(
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    file: Path,
    *,
    title: str,
    across: str,
) -> Path:
    """Write a PNG of horizontal bars from 0 to 100, atomically; `series` has the values of each
    network. Only the first groups are drawn if there are more than can be read."""
    try:
        from matplotlib.figure import Figure
    except ImportError as fault:
        raise UserError(
            "plots need matplotlib, which is missing; run: pip install matplotlib"
        ) from fault
    if not groups or not series:
        raise ValueError("there are no values to plot")
    shown = groups[:_MOST_GROUPS]
    told = "" if len(shown) == len(groups) else f", the first {len(shown)} of {len(groups)} classes"
    step = len(series) * _BAR + _BETWEEN
    tall, key = len(shown) * step, len(series) * 0.24
    width, height = _LEFT + _WIDE + 0.5, _HEAD + key + tall + _FOOT
    figure = Figure(figsize=(width, height), facecolor=PAPER)
    axes = figure.add_axes((_LEFT / width, _FOOT / height, _WIDE / width, tall / height))
    for number, values in enumerate(series.values()):
        places = [
            group * step + _BETWEEN / 2 + (number + 0.5) * _BAR for group in range(len(shown))
        ]
        found = [(y, value) for y, value in zip(places, values, strict=False) if value is not None]
        colour = COLOURS[number % len(COLOURS)]
        axes.barh([y for y, _ in found], [v for _, v in found], 0.9 * _BAR, color=colour, zorder=3)
        for y, value in found:
            axes.text(value + 0.6, y, f"{value:.0f}", va="center", fontsize=7.5, color=INK)
    axes.set_ylim(tall, 0)
    axes.set_xlim(0, 104)
    middles = [group * step + step / 2 for group in range(len(shown))]
    axes.set_yticks(middles, [_shortened(name) for name in shown], parse_math=False)
    axes.set_facecolor(PAPER)
    axes.grid(axis="x", color=FAINT, linewidth=0.9, zorder=0)
    axes.tick_params(length=0, labelcolor=INK, labelsize=9.5, pad=6)
    for side, line in axes.spines.items():
        line.set_visible(side == "left")
        line.set_color(INK)
    axes.set_xlabel(across + told, color=INK, fontsize=10)
    figure.text(0.3 / width, 1 - 0.35 / height, title, color=INK, fontsize=13, fontweight="bold")
    for number, name in enumerate(series):
        figure.text(
            0.3 / width,
            1 - (0.62 + 0.24 * number) / height,
            name,
            color=COLOURS[number % len(COLOURS)],
            fontsize=9.5,
            fontweight="bold",
            va="center",
            parse_math=False,
        )
    try:
        with atomic.file(file) as part:
            figure.savefig(part, format="png", dpi=_DOTS_PER_INCH, facecolor=PAPER)
    except OSError as fault:
        raise UserError(
            f"cannot write the plot {file}: {fault.strerror or fault}; make room, or choose "
            "another folder"
        ) from fault
    return file


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
