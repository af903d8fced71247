"""How far a long evaluation is: a bar on a terminal, a line now and then in a pipe."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from attmask import distributed

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Count up to `total` by calling what is yielded; only the main process shows it."""
    console = Console(stderr=True)
    if not distributed.is_main():
        yield lambda _: None
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda more: bar.advance(task, more)
    else:
        yield _Lines(what, total)


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.said = time.monotonic()

    def __call__(self, more: int) -> None:
        self.done += more
        if time.monotonic() - self.said >= _SECONDS_BETWEEN_LINES:
            self.said = time.monotonic()
            log.info("%s: %d of %d", self.what, self.done, self.total)
