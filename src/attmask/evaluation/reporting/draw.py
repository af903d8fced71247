"""Plots of several cards, by the tasks that have a plot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attmask.errors import UserError
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.task import Drawing, Task
from attmask.wording import either


def tasks_that_draw(tasks: Sequence[Task[Any]]) -> list[str]:
    """The names of the tasks whose protocol can plot its cards."""
    return [task.name for task in tasks if isinstance(task.protocol, Drawing)]


def check_drawable(tasks: Sequence[Task[Any]], known: Sequence[Task[Any]], file: Path) -> None:
    """Raise an error if no task has a plot; it names tasks that have one."""
    if not tasks_that_draw(tasks):
        raise UserError(
            f"{file}: {', '.join(task.name for task in tasks)} cannot be plotted; use .json, "
            f".md, .csv or .tex, or add the task {either(tasks_that_draw(known))}"
        )


def draw_cards(tasks: Sequence[Task[Any]], cards: Sequence[Card], file: Path) -> list[Path]:
    """Plot the cards of each task to the file, or to files named after it for several tasks."""
    drawing = [task for task in tasks if isinstance(task.protocol, Drawing)]
    written = []
    for task in drawing:
        own = [card for card in cards if card.task == task.name]
        if not own:  # the task failed for every network
            continue
        path = file if len(drawing) == 1 else file.with_stem(f"{file.stem}-{task.name}")
        assert isinstance(task.protocol, Drawing)
        task.protocol.draw(own, path)
        written.append(path)
    return written
