"""SIGINT and SIGTERM end a run after the current step or batch, so that it can be saved."""

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

log = logging.getLogger(__name__)


class StopRequestedError(Exception):
    """Raised between two batches when a stop was requested."""


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Handle SIGINT and SIGTERM: the first requests a stop, a second SIGINT ends at once."""
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
