"""Progress of a long evaluation: a bar on a terminal, occasional log lines otherwise."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attmask import distributed
from attmask.terminal import Bar, duration, screen

log = logging.getLogger(__name__)

_SECONDS_BETWEEN_LINES = 30.0


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts up to `total`; only the main process shows progress."""
    if not distributed.is_main():
        yield lambda _: None
    elif screen().has_bars:
        shown = _Shown(what, total)
        with screen().show(shown.bar):
            yield shown
    else:
        yield _Lines(what, total)


class _Shown:
    def __init__(self, what: str, total: int) -> None:
        self.what, self.bar, self.began = what, Bar(total), time.monotonic()
        self(0)

    def __call__(self, more: int) -> None:
        done, total = self.bar.done + more, self.bar.total
        count = f"{done}/{total}"
        seconds = (time.monotonic() - self.began) / max(done, 1) * (total - done)
        left = f"{duration(seconds) if done else '?'} left"
        self.bar.update(done, (f"{count}  {left}  {self.what}", f"{count}  {left}", count))


class _Lines:
    def __init__(self, what: str, total: int) -> None:
        self.what, self.total, self.done = what, total, 0
        self.said = time.monotonic()

    def __call__(self, more: int) -> None:
        self.done += more
        if time.monotonic() - self.said >= _SECONDS_BETWEEN_LINES:
            self.said = time.monotonic()
            log.info("%s: %d of %d", self.what, self.done, self.total)
