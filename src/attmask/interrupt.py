"""Signals end a run after the current step or batch, so that it can be saved."""

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
_STOPPING = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
    if hasattr(signal, name)  # Windows has fewer
]


class StopRequestedError(Exception):
    """Raised between two batches when a stop was requested."""


@contextmanager
def stop_signals() -> Iterator[Callable[[], int]]:
    """Handle signals: the first requests a stop, a second SIGINT ends at once.

    Gives a function that returns the number of the first signal, or 0. SIGHUP comes when a
    terminal is closed, SIGUSR1 from schedulers that are told so; what the caller ignores (as
    `nohup` does) stays ignored.

    A launcher of several processes sends on the Ctrl-C that they have received already, so there
    a second SIGINT counts only some seconds after the first.
    """
    received: list[tuple[int, float]] = []
    grace = _GRACE_SECONDS if launched() > 1 else 0.0

    def note(number: int, frame: FrameType | None) -> None:
        if received and number == signal.SIGINT and time.monotonic() - received[0][1] >= grace:
            raise KeyboardInterrupt
        if not received:
            log.info(
                "%s: stopping after this step or batch (press Ctrl-C again to stop without saving)",
                signal.Signals(number).name,
            )
        received.append((number, time.monotonic()))

    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0  # signals belong to the main thread; a caller's thread has none
        return
    handled = (n for n in _STOPPING if signal.getsignal(n) is not signal.SIG_IGN)
    before = {number: signal.signal(number, note) for number in handled}
    try:
        yield lambda: received[0][0] if received else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
