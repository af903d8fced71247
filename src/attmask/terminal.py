"""The terminal: bars that are redrawn in place, and messages that scroll above them."""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_LEAST_BAR = 6
_WIDEST_BAR = 40
_SECONDS_BETWEEN_DRAWINGS = 0.1


class Bar:
    """One line: what is known, in the longest of its forms that fits, then a bar in the rest."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total, self.done = total, done
        self.forms: Sequence[str] = (f"{done}/{total}",)
        self.screen: Screen | None = None

    def update(self, done: int, forms: Sequence[str]) -> None:
        """Update the bar; `forms` are texts of which the longest that fits is shown."""
        self.done, self.forms = done, forms
        if self.screen is not None:
            self.screen.redraw()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draw the line for the current width."""
        forms, width = self.forms, options.max_width
        text = next((form for form in forms if cell_len(form) <= width), forms[-1])
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_column(no_wrap=True, overflow="crop")
        shown: list[Text | ProgressBar] = [Text(text)]
        rest = min(width - cell_len(text) - 2, _WIDEST_BAR)
        if rest >= _LEAST_BAR:
            line.add_column(no_wrap=True)
            shown.append(ProgressBar(total=self.total, completed=self.done, width=rest))
        line.add_row(*shown)
        yield line


class Screen:
    """All bars of a console in one live display, since two would draw over each other."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars: list[Bar] = []
        self._display: Live | None = None
        self._drawn = 0.0

    @property
    def has_bars(self) -> bool:
        """Whether lines can be redrawn here; in a pipe and on a dumb terminal they cannot."""
        return self.console.is_terminal and not self.console.is_dumb_terminal

    @contextmanager
    def show(self, bar: Bar, *, stays: bool = False) -> Iterator[None]:
        """Show a bar below those that are shown already; one that `stays` is left at the end."""
        self._bars.append(bar)
        bar.screen = self
        try:
            if self._display is not None:
                yield
                return
            with self._live(stays):
                yield
        finally:
            bar.screen = None
            self._bars.remove(bar)
            self.redraw(at_once=True)

    def redraw(self, *, at_once: bool = False) -> None:
        """Redraw the bars, at most a few times per second."""
        now = time.monotonic()
        if self._display is not None and (
            at_once or now - self._drawn >= _SECONDS_BETWEEN_DRAWINGS
        ):
            self._drawn = now
            self._display.refresh()

    @contextmanager
    def _live(self, stays: bool) -> Iterator[None]:
        # No thread draws it: lines of two threads would come in any order.
        live = Live(
            console=self.console,
            get_renderable=lambda: Group(*self._bars),
            auto_refresh=False,
            transient=not stays,
        )
        plain = (sys.stdout, sys.stderr)
        with live:
            self._display = live
            self.redraw(at_once=True)
            # Lines of a log go the way of sys.stderr, which scrolls above the bars.
            moved = [
                (handler, handler.setStream(sys.stderr))
                for handler in _stream_handlers()
                if handler.stream in plain and sys.stderr not in plain
            ]
            try:
                yield
            finally:
                self._display = None
                for handler, stream in moved:
                    handler.setStream(stream)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds as 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}"


@cache
def screen() -> Screen:
    """The screen of standard error."""
    return Screen(Console(stderr=True))


def _stream_handlers() -> list["logging.StreamHandler[Any]"]:
    handlers = [*logging.getLogger().handlers, *logging.getLogger("attmask").handlers]
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]
