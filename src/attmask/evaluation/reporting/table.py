"""Comparison tables of cards, one row per metric: text, Markdown, CSV, LaTeX."""

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attmask.evaluation.reporting.card import Card
from attmask.metric import Metric, best

_NAMES = ("task", "metric", "key", "unit")
_BEST = "*"


@dataclass(frozen=True)
class Row:
    """One metric of one task for each checkpoint, None where it is missing."""

    task: str
    key: str
    title: str
    unit: str
    metrics: Sequence[Metric | None]

    @property
    def names(self) -> list[str]:
        """The cells before the values."""
        return [self.task, self.title, self.key, self.unit]


@dataclass(frozen=True)
class Comparison:
    """Rows of metrics, one column per checkpoint."""

    checkpoints: Sequence[str]
    rows: Sequence[Row]


def compare(cards: Sequence[Card]) -> Comparison:
    """Arrange cards in one row per metric of a task and one column per checkpoint."""
    checkpoints = list(dict.fromkeys(card.checkpoint for card in cards))
    found = {(c.task, m.key, c.checkpoint): m for c in cards for m in c.metrics}
    rows = dict.fromkeys((task, key) for task, key, _ in found)
    return Comparison(
        checkpoints,
        [_row(task, key, [found.get((task, key, c)) for c in checkpoints]) for task, key in rows],
    )


def _row(task: str, key: str, metrics: Sequence[Metric | None]) -> Row:
    """A row; titles that differ, for example in k, are joined."""
    known = [metric for metric in metrics if metric is not None]
    title = " / ".join(dict.fromkeys(metric.title for metric in known))
    unit = " / ".join(dict.fromkeys(metric.unit for metric in known if metric.unit))
    return Row(task, key, title, unit, metrics)


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def _value(metric: Metric | None) -> str:
    if metric is None:
        return ""
    return f"{metric.value:.0f}" if metric.unit == "images" else _number(metric.value)


def _spread(metric: Metric | None) -> str:
    return "" if metric is None or metric.spread is None else _number(metric.spread)


def _cell(metric: Metric | None) -> str:
    spread = _spread(metric)
    return f"{_value(metric)} ± {spread}" if spread else _value(metric)


def _lines(table: Comparison) -> list[list[str]]:
    """All cells as text, starting with the header."""
    rows = [[*row.names, *map(_cell, row.metrics)] for row in table.rows]
    return [[*_NAMES, *table.checkpoints], *rows]


def as_markdown(table: Comparison) -> str:
    """The table as GitHub Markdown."""
    titles, *rows = _lines(table)
    rule = ["---"] * len(_NAMES) + ["---:"] * len(table.checkpoints)
    return "".join(
        "| " + " | ".join(c.replace("|", r"\|") for c in line) + " |\n"
        for line in (titles, rule, *rows)
    )


def as_csv(table: Comparison) -> str:
    """The table as CSV; spreads have their own columns, so every cell is a number."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [
        column
        for column, _ in enumerate(table.checkpoints)
        if any(m is not None and m.spread is not None for m in _column(table, column))
    ]
    spreads = [f"{table.checkpoints[column]} spread" for column in columns]
    writer.writerow([*_NAMES, *table.checkpoints, *spreads])
    for row in table.rows:
        own = [_spread(row.metrics[column]) for column in columns]
        writer.writerow([*row.names, *map(_value, row.metrics), *own])
    return text.getvalue()


def _column(table: Comparison, column: int) -> list[Metric | None]:
    return [row.metrics[column] for row in table.rows]


def as_latex(table: Comparison) -> str:
    """The table as a LaTeX tabular with booktabs rules."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {c: f"\\{c}" for c in "&%$#_{}"} | {"±": r"$\pm$"}

    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(special.get(c, c) for c in cell) for cell in cells) + r" \\"

    titles, *rows = _lines(table)
    lines = [
        rf"\begin{{tabular}}{{{'l' * len(_NAMES)}{'r' * len(table.checkpoints)}}}",
        r"\toprule",
        line(titles),
        r"\midrule",
        *map(line, rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _network_line(network: Mapping[str, Any]) -> str:
    """The network in one line."""
    parts = [str(network["weights"])] if "weights" in network else []
    if "step" in network:
        epoch = f" (epoch {network['epoch']:g})" if "epoch" in network else ""
        parts.append(f"step {network['step']:,}{epoch}")
    parts.append(f"{network['depth']} blocks of width {network['width']}")
    parts.append(f"{network['heads']} heads, patch {network['patch size']}")
    parts += [f"{network['registers']} registers"] * bool(network["registers"])
    parts.append(f"positions by {network['positions']}")
    for name in ("mean", "std"):
        parts.append(f"{name} {' '.join(f'{value:g}' for value in network[name])}")
    return ", ".join(parts)


def _sizes(cards: Mapping[str, Card]) -> str:
    """The image sizes of a task by checkpoint, if they are known."""
    sizes = {name: card.network.get("image size") for name, card in cards.items()}
    known = {name: size for name, size in sizes.items() if size is not None}
    if not known:
        return ""
    if len(set(known.values())) == 1:
        return f"; {next(iter(known.values()))} pixels"
    return "; " + ", ".join(f"{name} {size} pixels" for name, size in known.items())


FORMATS: dict[str, Callable[[Comparison], str]] = {
    ".md": as_markdown,
    ".csv": as_csv,
    ".tex": as_latex,
}
"""The format of a table by file suffix."""


def render(cards: Sequence[Card], width: int) -> str:
    """The tables of all tasks as text for a terminal."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    names = list(dict.fromkeys(card.checkpoint for card in cards))
    for name in names:
        known = next((c.network for c in cards if c.checkpoint == name and c.network), None)
        if known:
            console.print(Text(f"{name}: {_network_line(known)}"))
    rows = compare(cards).rows
    for task in dict.fromkeys(card.task for card in cards):
        mine = {card.checkpoint: card for card in cards if card.task == task}
        first = next(iter(mine.values()))
        counts = ", ".join(f"{part} {count:,}" for part, count in first.images.items())
        console.print(Text(f"{task} (version {first.version}; {counts}{_sizes(mine)})"))
        console.print(_as_columns([row for row in rows if row.task == task], names))
        for note in dict.fromkeys(note for card in mine.values() for note in card.notes):
            console.print(Text(f"  note: {note}"))
        for file in dict.fromkeys(file for card in mine.values() for file in card.files):
            console.print(Text(f"  written: {file}"), soft_wrap=True)
    if any(any(_marks(row)) for row in rows):
        console.print(Text(f"{_BEST} best of its row"))
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return shown.getvalue()


def _as_columns(rows: Sequence[Row], checkpoints: Sequence[str]) -> Table:
    """A table of titles, units and values; the best value is marked if there is a direction."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    table.add_column("")
    for name in checkpoints:
        table.add_column(name, justify="right", overflow="fold")
    room = " " * any(any(_marks(row)) for row in rows)
    for row in rows:
        cells = [
            _cell(metric) + (_BEST if marked else room)
            for metric, marked in zip(row.metrics, _marks(row), strict=True)
        ]
        table.add_row(Text(row.title), row.unit, *map(Text, cells))
    return table


def _marks(row: Row) -> list[bool]:
    """Which cells are marked as the best; none if all look the same."""
    shown = [_value(metric) for metric in row.metrics]
    winners = {text for text, wins in zip(shown, best(row.metrics), strict=True) if wins}
    marks = [text in winners for text in shown]
    return [mark and set(shown) - {""} != winners for mark in marks]
