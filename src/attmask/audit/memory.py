"""Memory of processes, as the operating system reports it."""

import os
import sys
from pathlib import Path


def peak_bytes() -> int | None:
    """The peak memory of this process; None if the system does not report it."""
    if (status := Path("/proc/self/status")).is_file():
        # Not getrusage: there a process that was started inherits the peak of its parent.
        return _kilobytes(status.read_text(), "VmHWM")
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes on macOS


def private_bytes(process: int) -> int | None:
    """The memory of a process that is not shared with others; None if unknown."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return None
    return _kilobytes(text, "Private_Clean") + _kilobytes(text, "Private_Dirty")


def total_bytes() -> int | None:
    """The memory of the machine."""
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _kilobytes(text: str, key: str) -> int:
    line = next(line for line in text.splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024
