"""Cards side by side: one row a number, one column a checkpoint; as text, Markdown, CSV, LaTeX."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attmask.evaluation.reporting.card import Card


@dataclass(frozen=True)
class Grid:
    """Cells of text under titles; the first two columns name the task and the number."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]


def compare(cards: Sequence[Card]) -> Grid:
    """One row for each number of each task, one column for each checkpoint."""
    checkpoints = list(dict.fromkeys(card.checkpoint for card in cards))
    numbers = dict.fromkeys((card.task, name) for card in cards for name in card.numbers)
    found = {
        (card.checkpoint, card.task, name): value
        for card in cards
        for name, value in card.numbers.items()
    }
    rows = [
        [task, name, *(_cell(found.get((checkpoint, task, name))) for checkpoint in checkpoints)]
        for task, name in numbers
    ]
    return Grid(["task", "number", *checkpoints], rows)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    if value == int(value) and abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.2f}" if abs(value) >= 1 or value == 0 else f"{value:.3g}"


def as_markdown(grid: Grid) -> str:
    """A table of GitHub's kind."""
    lines = [grid.titles, ["---", "---", *["---:"] * (len(grid.titles) - 2)], *grid.rows]
    return "".join(
        "| " + " | ".join(c.replace("|", r"\|") for c in line) + " |\n" for line in lines
    )


def as_csv(grid: Grid) -> str:
    """For a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(grid.titles)
    writer.writerows(grid.rows)
    return text.getvalue()


def as_latex(grid: Grid) -> str:
    """A tabular with booktabs' rules."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {c: f"\\{c}" for c in "&%$#_{}"}

    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(special.get(c, c) for c in cell) for cell in cells) + r" \\"

    lines = [
        rf"\begin{{tabular}}{{ll{'r' * (len(grid.titles) - 2)}}}",
        r"\toprule",
        line(grid.titles),
        r"\midrule",
        *map(line, grid.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _network_line(network: Mapping[str, Any]) -> str:
    """What was measured, in one line."""
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
    """The image sizes of a task by checkpoint, where they are known."""
    sizes = {name: card.network.get("image size") for name, card in cards.items()}
    known = {name: size for name, size in sizes.items() if size is not None}
    if not known:
        return ""
    if len(set(known.values())) == 1:
        return f"; {next(iter(known.values()))} pixels"
    return "; " + ", ".join(f"{name} {size} pixels" for name, size in known.items())


def _label(number: str, cards: Iterable[Card]) -> str:
    """The name of a number with the k it was measured at, where it has one."""
    ks = {card.details.get("k", {}).get(number) for card in cards} - {None}
    return f"{number} (k = {', '.join(map(str, sorted(ks)))})" if ks else number


FORMATS: dict[str, Callable[[Grid], str]] = {
    ".md": as_markdown,
    ".csv": as_csv,
    ".tex": as_latex,
}
"""How a table is written, by the ending of its file."""


def render(cards: Sequence[Card], width: int) -> str:
    """For a terminal: each task with its numbers down, the checkpoints across."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    names = list(dict.fromkeys(card.checkpoint for card in cards))
    for name in names:
        known = next((c.network for c in cards if c.checkpoint == name and c.network), None)
        if known:
            console.print(Text(f"{name}: {_network_line(known)}"))
    for task in dict.fromkeys(card.task for card in cards):
        mine = {card.checkpoint: card for card in cards if card.task == task}
        first = next(iter(mine.values()))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        counts = ", ".join(f"{part} {count:,}" for part, count in first.images.items())
        console.print(Text(f"{task} (version {first.version}; {counts}{_sizes(mine)})"))
        table.add_column("")
        for name in names:
            table.add_column(name, justify="right", overflow="fold")
        for number in dict.fromkeys(n for card in mine.values() for n in card.numbers):
            cells = [mine[n].numbers.get(number) if n in mine else None for n in names]
            table.add_row(_label(number, mine.values()), *map(_cell, cells))
        console.print(table)
        for note in dict.fromkeys(note for card in mine.values() for note in card.notes):
            console.print(Text(f"  note: {note}"))
        for file in dict.fromkeys(file for card in mine.values() for file in card.files):
            console.print(Text(f"  drawn: {file}"), soft_wrap=True)
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return shown.getvalue()
