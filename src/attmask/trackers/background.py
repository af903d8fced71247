"""A tracker in a thread of its own, which cannot slow, end or hang a training."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Full, Queue

from attmask.trackers.tracker import Tracker

CLOSING_SECONDS = 30.0
_LONGEST_QUEUE = 10_000  # records; a day of a slow run
logger = logging.getLogger(__name__)


class Background:
    """Opens a tracker at the first record and hands it one record after the other.

    A tracker that fails gets no more records; the caller's thread says so, once.
    """

    def __init__(
        self,
        title: str,
        open_tracker: Callable[[], Tracker],
        abandon: Callable[[], None] | None = None,
    ) -> None:
        self.title = title
        self._open = open_tracker
        self._abandon = abandon
        self._records: Queue[tuple[Mapping[str, float], int, int] | None] = Queue(_LONGEST_QUEUE)
        self._thread: threading.Thread | None = None
        self._fault: Exception | None = None
        self._failed = False
        self._off = False

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        """Hand over one record; returns at once and never raises."""
        if self._is_off():
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self.title, daemon=True)
            self._thread.start()
        try:
            self._records.put_nowait((metrics, step, epoch))
        except Full:
            self._turn_off(f"is {_LONGEST_QUEUE} records behind")

    def finish(self, failed: bool) -> None:
        """Ask the tracker to close after the records it has."""
        self._failed = failed
        with suppress(Full):  # it is stuck, and `wait` says so
            self._records.put_nowait(None)

    def wait(self, until: float) -> None:
        """Wait until it is closed, at most until this time of time.monotonic()."""
        if self._thread is None:
            return
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            if not self._is_off():
                self._turn_off("did not take all metrics in time")
            if self._abandon is not None:
                self._abandon()
        self._is_off()  # says why

    def _is_off(self) -> bool:
        if self._fault is not None and not self._off:
            self._turn_off(f"failed ({_reason(self._fault)})")
        return self._off

    def _turn_off(self, reason: str) -> None:
        self._off = True
        logger.warning(
            "%s %s and gets no more metrics until the run is resumed; metrics.jsonl has all",
            self.title,
            reason,
        )

    def _work(self) -> None:
        tracker = None
        try:
            tracker = self._open()
            while (record := self._records.get()) is not None:
                tracker.log(*record)
            tracker.close(self._failed)
        except Exception as fault:  # whatever a library or a server may raise
            self._fault = fault
            if tracker is not None:
                with suppress(Exception):
                    tracker.close(failed=True)


def _reason(fault: Exception) -> str:
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    first_line = next(iter(str(fault).strip().splitlines()), "")
    return ": ".join(filter(None, [type(fault).__name__, first_line]))


def close_all(trackers: Sequence[Background], failed: bool, seconds: float) -> None:
    """Close several trackers at the same time."""
    until = time.monotonic() + seconds
    for tracker in trackers:
        tracker.finish(failed)
    for tracker in trackers:
        tracker.wait(until)
