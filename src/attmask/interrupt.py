"""Ctrl-C and a polite kill: end after the current step or batch, so that work can be saved."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger(__name__)


class StopRequestedError(Exception):
    """Ends a loop over batches, between two of them, because a stop was requested."""


def stopping(count: Callable[[int], None], stopped: Callable[[], bool]) -> Callable[[int], None]:
    """Count finished work as `count` does, and raise StopRequestedError once `stopped` says so."""

    def counted(more: int) -> None:
        count(more)
        if stopped():
            raise StopRequestedError

    return counted


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and a polite kill end the run after the current step; a second Ctrl-C at once."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)
        log.warning("stopping after this step or batch (press Ctrl-C again to stop without saving)")

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals belong to the main thread; a caller's thread has none
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
