"""Worker processes that read data: their start, and a one-line error when one dies."""

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Generic, TypeVar
from weakref import WeakSet, finalize

import cv2
import torch
from torch import Tensor
from torch.utils.data import DataLoader, get_worker_info

from attmask.errors import UserError

Made = TypeVar("Made")
Result = TypeVar("Result")

_SECONDS_TO_DIE = 3.0
"""How long a killed worker may take to end after its sockets were closed."""

_waited_for: Sequence[BaseProcess] = ()
_feeds = 0
_handler_before: Any = None


class WorkerDiedError(Exception):
    """A worker process died."""

    def __init__(self, pid: int | None, exitcode: int) -> None:
        super().__init__(f"worker {pid} ended with {exitcode}")
        self.pid, self.exitcode = pid, exitcode


class Feed(Generic[Made]):
    """Iterates over a DataLoader such that the death of a worker raises in `take` and nowhere else.

    PyTorch has a handler of SIGCHLD that raises wherever the main thread is: in the middle of an
    optimiser step, or while a checkpoint is written. Here a death is noticed when the next batch
    is asked for or waited for, so the step before it is whole and can be saved.

    `workers` names the setting that an error advises to lower; `place` says which picture a
    process was reading.
    """

    def __init__(
        self,
        loader: DataLoader[Made],
        *,
        workers: str,
        place: Callable[[int], str | None] = lambda _: None,
    ) -> None:
        self._loader: DataLoader[Made] | None = loader
        self._running: Iterator[Made] | None = None
        self._ending: finalize[[Any], Any] | None = None
        self._setting, self._place = workers, place
        self._quiet = False
        _open.add(self)

    def restart(self) -> None:
        """Start the iteration, or start it again with the same workers."""
        assert self._loader is not None, "a feed that was closed cannot be used again"
        loader, count = self._loader, self._loader.num_workers
        if count and not self._quiet:
            self._quiet = _raise_only_while_waiting()
        try:
            self._running = running = self._watched(lambda: iter(loader))
            if count and self._ending is None:
                # A circle of references may hold this feed. Without another reference to the
                # iterator Python would close the queues to the workers before it ends them.
                self._ending = finalize(self, _end, running)
                self._ending.atexit = False
        except OSError as fault:
            raise UserError(
                f"cannot start {count} worker processes: {fault.strerror or fault}; "
                f"use fewer {self._setting}"
            ) from fault
        finally:
            if self._quiet:
                _install()  # a DataLoader's first iteration sets PyTorch's handler

    def take(self) -> Made:
        """The next item; StopIteration at the end."""
        running = self._running
        assert running is not None, "a feed is started before it is read"
        return self._watched(lambda: next(running))

    def close(self) -> None:
        """End the workers, also where the traceback of an error still holds their iterator."""
        self._running = self._loader = None
        if self._ending is not None:
            self._ending()
        if self._quiet:
            self._quiet = False
            _give_back()

    @property
    def _workers(self) -> Sequence[BaseProcess]:
        found: Sequence[BaseProcess] = getattr(self._running, "_workers", ())
        return found

    def _watched(self, make: Callable[[], Result]) -> Result:
        try:
            with _waiting(self._workers):
                return make()
        except StopIteration:
            raise
        except Exception as fault:
            died = self._death(fault)
            if died is None:
                raise
        # Raised outside of the handler: a context would keep the iterator and its workers alive.
        for worker in self._workers:
            worker.kill()
            worker.join()
        raise self._explained(died)

    def _death(self, fault: Exception) -> WorkerDiedError | None:
        """The death behind a fault, if there is one.

        A read may fail on the closed socket of a worker (ConnectionResetError, EOFError,
        FileNotFoundError, ...) just before the system reports its end.
        """
        if isinstance(fault, WorkerDiedError):
            return fault
        connection_lost = isinstance(fault, OSError | EOFError) or "DataLoader" in str(fault)
        deadline = time.monotonic() + (_SECONDS_TO_DIE if connection_lost else 0)
        while True:
            if (died := _first_death(self._workers, quiet=connection_lost)) is not None:
                return died
            if not self._workers or time.monotonic() >= deadline:
                return None
            time.sleep(0.01)

    def _explained(self, died: WorkerDiedError) -> UserError:
        """The error of a dead worker: the signal, the picture it was reading, and what to do."""
        number, place = -died.exitcode, None if died.pid is None else self._place(died.pid)
        how = "ended" if number <= 0 else f"was ended by signal {signal.strsignal(number)}"
        told = f"a worker process {how}{f' while it read {place}' if place else ''}"
        count = len(self._workers)
        fewer = f"use fewer {self._setting} ({count} now)"
        if number == signal.SIGKILL:
            again = "; if it ends at this picture again, take the picture out" if place else ""
            return UserError(f"{told}; the machine most likely ran out of memory: {fewer}{again}")
        if place:
            return UserError(f"{told}; remove this picture, or {fewer} if memory ran out")
        return UserError(f"{told}; if memory ran out, {fewer}")


_open: WeakSet[Feed[Any]] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End the workers at exit: they ignore SIGTERM, so Python would wait for them for ever."""
    for feed in list(_open):
        feed.close()


def _end(running: Any) -> None:
    """End the workers of an iterator, if it has any."""
    end = getattr(running, "_shutdown_workers", None)
    if end is not None:
        end()


_threads_of_opencv: list[int] = []


def _rest_opencv() -> None:
    _threads_of_opencv.append(cv2.getNumThreads())
    cv2.setNumThreads(1)


def _wake_opencv() -> None:
    cv2.setNumThreads(_threads_of_opencv.pop())


if hasattr(os, "register_at_fork"):
    # A forked process has none of the threads that OpenCV has started, and waits for them for
    # ever. So they end before a fork, and come back in the parent when OpenCV needs them.
    os.register_at_fork(before=_rest_opencv, after_in_parent=_wake_opencv)


def start_worker(_: int) -> None:
    """One thread a worker; signals to stop are for the main process, which ends its workers itself.

    Batch systems send SIGTERM to every process of a job. The first one is ignored, so that
    the main process can finish its step and save; another ends the worker.
    """
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _pass_over_once)


def to_shared_memory(tensors: Sequence[Tensor]) -> UserError | None:
    """Move a worker's tensors to shared memory; an error where there is no room for them.

    The thread that sends them would do it otherwise, and on a full /dev/shm it loses the batch
    silently, and the main process would wait for ever.
    """
    if get_worker_info() is None:
        return None
    try:
        for tensor in tensors:
            tensor.share_memory_()
    except RuntimeError as fault:
        why = str(fault).splitlines()[0].rpartition(": ")[2]
        return UserError(
            f"a worker process has no shared memory for a batch ({why}); use fewer workers or a "
            "smaller batch, or enlarge /dev/shm (docker run --shm-size=8g)"
        )
    return None


def _pass_over_once(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)


def _first_death(workers: Sequence[BaseProcess], *, quiet: bool = False) -> WorkerDiedError | None:
    """The worker that died, by a signal if there is one; with `quiet`, also one that ended with
    status 0, as all do after the last batch."""
    ends = [(w.pid, w.exitcode) for w in workers]
    ended = [(pid, code) for pid, code in ends if code or (quiet and code == 0)]
    return WorkerDiedError(*min(ended, key=lambda end: end[1])) if ended else None


@contextmanager
def _waiting(workers: Sequence[BaseProcess]) -> Iterator[None]:
    """Within this context the death of a worker raises at once, also during a blocked read."""
    global _waited_for
    in_main = threading.current_thread() is threading.main_thread()
    try:
        if in_main:
            _waited_for = workers
        if (died := _first_death(workers)) is not None:  # while nobody was waiting
            raise died
        yield
    finally:
        if in_main:
            _waited_for = ()


def _on_child(number: int, frame: FrameType | None) -> None:
    if callable(_handler_before):
        with suppress(RuntimeError):  # PyTorch's way to say that a worker has died
            _handler_before(number, frame)
    if (died := _first_death(_waited_for)) is not None:
        raise died


def _raise_only_while_waiting() -> bool:
    """Count one more feed, if signals can be handled here: in the main thread alone."""
    global _feeds
    if threading.current_thread() is not threading.main_thread():
        return False
    _feeds += 1
    return True


def _install() -> None:
    global _handler_before
    before = signal.getsignal(signal.SIGCHLD)
    if before is not _on_child:
        _handler_before = before
        signal.signal(signal.SIGCHLD, _on_child)


def _give_back() -> None:
    """Restore the previous handler after the last feed."""
    global _feeds
    _feeds -= 1
    in_main = threading.current_thread() is threading.main_thread()
    if _feeds == 0 and in_main and signal.getsignal(signal.SIGCHLD) is _on_child:
        signal.signal(signal.SIGCHLD, _handler_before or signal.SIG_DFL)
