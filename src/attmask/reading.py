"""Files that anybody may have written: regular ones, of a size that fits into memory."""

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 2**24
"""Of a file of settings or states, which has some kilobytes."""


def check_regular(path: Path) -> None:
    """Raise an OSError for a folder, and for a pipe or device, which may have no end."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"{path.name} is not a regular file", str(path))


def read_regular(path: Path, most_bytes: int | None = None) -> bytes:
    """The bytes of a regular file; an OSError if it is another kind of file or larger."""
    check_regular(path)
    size = path.stat().st_size
    if most_bytes is not None and size > most_bytes:
        reason = f"{path.name} has {size:,} bytes, and {most_bytes:,} are the most"
        raise OSError(errno.EFBIG, reason, str(path))
    return path.read_bytes()
