"""Files and folders that are written whole or not at all: beside the old one, flushed, renamed.

FOLDER/.part-1234-5f3a9c01@host-4026531836@cards.json    what is being written, and by whom
"""

import errno
import os
import re
import secrets
import shutil
import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_PREFIX = ".part-"
_PART = re.compile(r"\.part-(?P<writer>(?P<pid>\d+)-[0-9a-f]+@(?P<host>[^@]+))@.+", re.DOTALL)
# Names of earlier versions: unfinished checkpoints and features.
_OLD_PART = re.compile(r"\.part-(\d{8}-\d+@.+|[0-9a-f]{32}-.+-\d+)", re.DOTALL)
_ABANDONED_SECONDS = 3600
_ATTEMPTS = 3

_own_writers: set[str] = set()
"""The writers of this process that have not finished."""


def write(path: Path, content: bytes | str, *, flushes: bool = True) -> None:
    """Write a file; text is encoded as UTF-8.

    What is written anew every few seconds and needs not survive a power cut is not flushed.
    """
    with file(path, flushes=flushes) as part:
        part.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def file(path: Path, *, flushes: bool = True) -> Iterator[Path]:
    """Give a path to write to; the file there replaces `path` unless the block raises.

    The temporary name ends like the final one, for libraries that go by the suffix.
    """
    writer = new_writer()
    part = _part(path, writer)
    try:
        make_folder(path.parent)
        part.touch()
        remove_leftovers(part, [path.parent])
        yield part
        if flushes:
            flush(part)
        part.replace(path)
        if flushes:
            flush(path.parent)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        _own_writers.discard(writer)


@contextmanager
def folder(
    path: Path, *, replaces: Callable[[Path], bool], writer: str | None = None
) -> Iterator[Path]:
    """Give a folder to fill; it becomes `path` unless the block raises.

    Where `path` exists by then, it is replaced if `replaces` says so; otherwise it stays and the
    new folder is discarded. Several processes fill one folder if all give the same `writer`, made
    by one of them with `new_writer`: that one renames the folder, after the others are done.
    """
    writer = writer or new_writer()
    is_owner = writer in _own_writers
    part = _part(path, writer)
    try:
        make_folder(path.parent)
        part.mkdir(exist_ok=True)
        if is_owner:
            remove_leftovers(part, [path.parent])
        yield part
        if is_owner:
            for written in part.iterdir():
                flush(written)
            flush(part)
            _put(part, path, replaces)
            flush(path.parent)
    finally:
        if is_owner:
            shutil.rmtree(part, ignore_errors=True)
            _own_writers.discard(writer)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, each flushed into the one above it.

    A file that was flushed is lost in a power cut if a folder on its path was not.
    """
    if path.is_dir():
        return
    if not path.parent.exists():
        make_folder(path.parent)
    path.mkdir(exist_ok=True)
    flush(path.parent)


def new_writer() -> str:
    """Return a new name for a writer, which contains its process and machine.

    A name is seen by all machines of a shared disk; locks often are not.
    """
    writer = f"{os.getpid()}-{secrets.token_hex(4)}@{this_machine()}"
    _own_writers.add(writer)
    return writer


def remove_folder(path: Path) -> None:
    """Remove a folder: rename it first, so that no reader finds half of it, then delete it.

    The new name is flushed before anything is deleted, or a power cut could leave half of it under
    the old one.
    """
    writer = new_writer()
    removed = _part(path, writer)
    try:
        path.rename(removed)
        flush(path.parent)
        shutil.rmtree(removed)
    except FileNotFoundError:  # it is not there, or another process removes it too
        pass
    finally:
        _own_writers.discard(writer)


def is_being_written(folder: Path) -> bool:
    """Whether `folder` holds a file or folder that is not finished."""
    return any(folder.glob(f"{_PREFIX}*"))


def is_unfinished(path: Path) -> bool:
    """Whether this is what a writer has begun and perhaps left."""
    return _PART.fullmatch(path.name) is not None


def what_to_do(fault: OSError) -> str:
    """What lets the same command go on after an error of the disk."""
    if fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "make room, then start the same command again"
    if fault.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "make the disk writable, then start the same command again"
    if fault.errno in (errno.EEXIST, errno.ENOTDIR, errno.ENAMETOOLONG):
        return "choose another output folder"
    return "check the disk, then start the same command again"


def _part(path: Path, writer: str) -> Path:
    return path.with_name(f"{_PREFIX}{writer}@{path.name}")


def this_machine() -> str:
    """Return the machine and the namespace of its process numbers, which containers have each.

    Cloned machines may share a name, so the boot (on Linux) or the network card counts too.
    """
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        namespace = "".join(filter(str.isdigit, str(Path("/proc/self/ns/pid").readlink())))
    except OSError:
        machine, namespace = f"{uuid.getnode():x}", ""
    return re.sub("[/@]", "_", f"{socket.gethostname()}-{machine}-{namespace}")


def _put(part: Path, final: Path, replaces: Callable[[Path], bool]) -> None:
    """Rename a finished folder, unless another process was first and its folder is to stay."""
    for _ in range(_ATTEMPTS):
        writer = new_writer()
        old = _part(final, writer)
        if final.exists() and replaces(final):
            with suppress(OSError):  # another process replaces it too
                final.rename(old)
        try:
            part.rename(final)
        except OSError as fault:
            if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        finally:  # last, because a large folder takes long to delete
            shutil.rmtree(old, ignore_errors=True)
            _own_writers.discard(writer)


def disk_time(folder: Path) -> float:
    """The time by the clock of the disk that `folder` is on, which may be another machine's."""
    writer = new_writer()
    probe = _part(folder / "clock", writer)
    try:
        probe.touch()
        return probe.stat().st_mtime
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        _own_writers.discard(writer)


def remove_leftovers(own: Path, folders: Iterable[Path]) -> None:
    """Remove from `folders` what processes that were killed while they wrote have left.

    A process of this machine is known to live or not. One of another machine is taken for dead
    when nothing was written for an hour by the clock of the disk, which has just dated `own`.
    """
    now = own.stat().st_mtime
    for left in (found for folder in folders for found in folder.glob(f"{_PREFIX}*")):
        if left != own and _is_abandoned(left, now):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                with suppress(OSError):
                    left.unlink()


def _is_abandoned(part: Path, now: float) -> bool:
    owner = _PART.fullmatch(part.name)
    if owner is None and _OLD_PART.fullmatch(part.name) is None:  # not ours
        return False
    if owner is not None and owner["host"] == this_machine():
        pid = int(owner["pid"])
        if pid == os.getpid():
            return owner["writer"] not in _own_writers
        return not lives(pid)
    try:
        written = (part, *part.iterdir()) if part.is_dir() else (part,)
        last: float = max(path.stat().st_mtime for path in written)
    except OSError:  # finished or removed meanwhile
        return False
    return now - last >= _ABANDONED_SECONDS


def lives(pid: int) -> bool:
    """Whether a process of this machine is there; one that only waits to be reaped is not."""
    if os.name == "nt":  # there a signal 0 would be Ctrl-C
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        return True
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:  # there is no such file on this system
        return True


def flush(path: Path) -> None:
    """Wait until a file or a folder is on disk: only then is a rename safe from a power cut."""
    if os.name == "nt" and path.is_dir():  # folders cannot be opened there
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
