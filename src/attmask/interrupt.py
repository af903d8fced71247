"""SIGINT and SIGTERM end a run after the current step or batch, so that it can be saved."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from attmask.launch import launched

log = logging.getLogger(__name__)

_GRACE_SECONDS = 3.0


class StopRequestedError(Exception):
    """Raised between two batches when a stop was requested."""


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """Handle SIGINT and SIGTERM: the first requests a stop, a second SIGINT ends at once.

    A launcher of several processes sends on the Ctrl-C that they have received already, so there
    a second SIGINT counts only some seconds after the first.
    """
    received: list[float] = []
    grace = _GRACE_SECONDS if launched() > 1 else 0.0

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT and time.monotonic() - received[0] >= grace:
            raise KeyboardInterrupt
        if not received:
            log.info(
                "stopping after this step or batch (press Ctrl-C again to stop without saving)"
            )
        received.append(time.monotonic())

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals belong to the main thread; a caller's thread has none
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(received)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
