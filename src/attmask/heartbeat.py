"""Who trains in the folder of a run: a heartbeat for supervisors, which keeps second starts out.

RUN/heartbeat.json is written every ten seconds by the main process, and when the state changes.
Whoever wants to train in a folder looks there first. A process of this machine is known to live or
not; one of another machine counts as dead when its heartbeat is two minutes old.
"""

import getpass
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from attmask import atomic
from attmask.errors import UserError
from attmask.events import add_event
from attmask.history import now
from attmask.reading import MOST_BYTES, read_regular

HEARTBEAT = "heartbeat.json"
BEAT_SECONDS = 10.0
OLD_SECONDS = 120.0
ENDED = ("finished", "stopped", "failed")
"""The states of a run that nobody trains."""

log = logging.getLogger(__name__)


class Holder(BaseModel):
    """Who trains, or has trained, in a folder."""

    model_config = ConfigDict(frozen=True)
    host: str
    pid: int
    user: str
    since: str
    machine: str
    """The host, its boot and its namespace of process numbers."""
    started: int | None
    """When the process started, in ticks since the boot: numbers of processes are used again."""
    token: str

    @classmethod
    def this(cls) -> "Holder":
        """This process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container may have no name for its user
            user = str(os.getuid()) if hasattr(os, "getuid") else "?"
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            user=user,
            since=now(),
            machine=atomic.this_machine(),
            started=_start_of(os.getpid()),
            token=secrets.token_hex(8),
        )

    @property
    def lives(self) -> bool | None:
        """Whether the process is there; None if that cannot be told from this machine."""
        if self.machine != atomic.this_machine():
            return None
        if self.pid == os.getpid():
            return self.token in _OWN
        if not atomic.lives(self.pid):
            return False
        if self.started is None:
            return None
        return self.started == _start_of(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}"


class Beat(BaseModel):
    """The content of heartbeat.json."""

    model_config = ConfigDict(frozen=True, extra="allow")
    state: str
    time: str
    holder: Holder
    step: int | None = None
    steps: int | None = None
    epoch: int | None = None
    epochs: int | None = None
    step_time: str | None = None
    """When the last step was finished."""
    images_per_second: float | None = None
    seconds_left: float | None = None
    skipped_steps: int = 0
    loss: float | None = None
    findings: tuple[str, ...] = ()
    """What the watch over the training has found and still holds, a line each."""
    error: str | None = None
    processes: tuple[tuple[str, int], ...] = ()
    """Host and process id of every process, in the order of their ranks."""

    @property
    def is_held(self) -> bool:
        """Whether somebody trains, as far as the file says."""
        return self.state not in ENDED


_OWN: set[str] = set()
"""The tokens that this process holds."""


class Heartbeat:
    """Holds the folder of a run and tells how far it is; only the main process writes."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self._holder = Holder.this()
        self._values: dict[str, Any] = {"state": "starting"}
        self._lock = threading.Lock()  # of the values, and never held while a disk is waited for
        self._beating = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="attmask-heartbeat", daemon=True)
        self._taken_by: Holder | None = None
        self._failed = False
        self._before: bytes | None = None
        """What an earlier process has left in the file."""

    @property
    def path(self) -> Path:
        """The file."""
        return self.run / HEARTBEAT

    def take(self) -> None:
        """Take the folder, or raise an error that names who holds it."""
        atomic.make_folder(self.run)
        _wait_for_old(self.path)
        with _guard(self.run):
            if (found := read_beat(self.run)) is not None and found.is_held:
                if _is_there(found.holder, self.path):
                    raise UserError(_refusal(self.run, found))
                log.warning("%s", _taken_over(self.run, found))
            with suppress(FileNotFoundError):
                self._before = self.path.read_bytes()
            _OWN.add(self._holder.token)
            self._write()
        self._thread.start()

    def update(self, **values: Any) -> None:
        """Note what has changed, for the next beat; a new state is written at once."""
        if not self._thread.is_alive():
            return
        with self._lock:
            is_new = values.get("state", self._values["state"]) != self._values["state"]
            self._values |= values
        if is_new:
            self._beat()

    def tell(self, kind: str, **values: Any) -> None:
        """Add an event to the record of the run, unless another process has taken the folder."""
        taken = self._thread.is_alive() or self._ended.is_set()
        if taken and self._taken_by is None:
            add_event(self.run, kind, **values)

    def takeover(self) -> str | None:
        """A line if another process has taken the folder meanwhile."""
        if self._thread.is_alive():
            self._beat()
        if self._taken_by is None:
            return None
        return (
            f"{self._taken_by} has trained in {self.run} since {_local(self._taken_by.since)}, "
            "because this process gave no sign of life; this one stops and does not save"
        )

    def release(self, error: str | None = None) -> None:
        """Write the last state; a start that failed before its training leaves no trace."""
        if not self._thread.is_alive():
            return
        self._ended.set()
        self._thread.join()
        if error is None or self._values["state"] != "starting":
            if error is not None:
                self.tell("fail", step=self._values.get("step"), text=error)
                self._values |= {"state": "failed", "error": error}
            self._beat()
        else:
            self._put_back()
        _OWN.discard(self._holder.token)

    def _put_back(self) -> None:
        """Leave the file and the folder as they were found."""
        self._beat()
        with suppress(OSError):
            if self._taken_by is None and self._before is not None:
                atomic.write(self.path, self._before)
            elif self._taken_by is None:
                self.path.unlink()
                self.run.rmdir()  # unless something else is in it

    def _beat_on(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            self._beat()

    def _beat(self) -> None:
        """Write the file, unless another process has taken it or the folder is gone."""
        with self._beating:
            if self._taken_by is not None or not self.run.is_dir():
                return
            found = read_beat(self.run)
            if found is not None and found.holder.token != self._holder.token:
                self._taken_by = found.holder
                return
            try:
                self._write()
                self._failed = False
            except OSError as fault:  # the training does not need it
                if not self._failed:
                    why = fault.strerror or fault
                    log.warning("cannot write %s: %s; training goes on", self.path, why)
                self._failed = True

    def _write(self) -> None:
        with self._lock:
            beat = {"time": now(), **self._values, "holder": self._holder.model_dump()}
        atomic.write(self.path, json.dumps(beat, indent=1) + "\n", flushes=False)


def read_beat(run: Path) -> Beat | None:
    """The last heartbeat of a run; None if there is none."""
    try:
        return Beat.model_validate_json(read_regular(run / HEARTBEAT, MOST_BYTES))
    except (OSError, ValidationError):
        return None


def seconds_since(moment: str) -> float:
    """The seconds since a time that `history.now` gave."""
    return max(0.0, time.time() - datetime.fromisoformat(moment).timestamp())


def _wait_for_old(path: Path) -> None:
    """Wait until a holder on another machine has shown that it lives, or until it is old."""
    found = read_beat(path.parent)
    if found is None or not found.is_held or found.holder.lives is not None or _is_old(path):
        return
    log.info(
        "%s has held %s since %s; waiting at most %.0f s for a sign of life",
        found.holder,
        path.parent,
        _local(found.holder.since),
        OLD_SECONDS,
    )
    while (again := read_beat(path.parent)) == found and not _is_old(path):
        time.sleep(0.5)
    if again is not None and again != found and again.holder == found.holder and again.is_held:
        raise UserError(_refusal(path.parent, again))


def _is_there(holder: Holder, path: Path) -> bool:
    """Whether a holder lives: its process is known, or its heartbeat is not old."""
    return not _is_old(path) if holder.lives is None else holder.lives


def _is_old(path: Path) -> bool:
    """Whether a heartbeat was written long ago, by the clock of the disk."""
    try:
        return atomic.disk_time(path.parent) - path.stat().st_mtime >= OLD_SECONDS
    except FileNotFoundError:
        return True


def _refusal(run: Path, found: Beat) -> str:
    return (
        f"{run} is in use: {found.holder} has worked there since {_local(found.holder.since)}, "
        f"last heartbeat {seconds_since(found.time):.0f} s ago; stop it first, or choose another "
        "--out"
    )


def _taken_over(run: Path, found: Beat) -> str:
    step = "" if found.step is None else f" at step {found.step}"
    return (
        f"{run} was left by {found.holder}, which has ended without a word after its heartbeat of "
        f"{_local(found.time)}{step}; taking over"
    )


def _local(moment: str) -> str:
    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _start_of(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None where the system does not say."""
    try:
        about = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(about.rpartition(")")[2].split()[19])


@contextmanager
def _guard(folder: Path) -> Iterator[None]:
    """Let one process at a time look and write, where the disk has locks.

    Elsewhere two that start at the same moment both write, and the first one notices at its next
    beat.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
