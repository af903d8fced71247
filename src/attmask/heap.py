"""Returns memory that was freed to the system when a training on a CPU holds too much of it.

The number of masked tokens changes with every step, and so do the sizes of tensors. The C library
keeps freed blocks for later and reuses them in other places, so the resident memory of a long run
would become the union of what all its steps touched: twice what one step needs (docs/log.md).
"""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_FIRST_STEPS = 6  # as many as `inspect` measures
_GROWTH = 1.1  # over the first steps; a trim costs a tenth of a small step, so not at every one
_STATM = Path("/proc/self/statm")


@dataclass
class Heap:
    """Watches the resident memory of this process after each step."""

    resident: Callable[[], int | None] = field(default_factory=lambda: resident_bytes)
    trim: Callable[[], None] = field(default_factory=lambda: return_freed_memory)
    _steps: int = 0
    _usual: int = 0

    @property
    def allowed(self) -> int:
        """The memory that is held before any of it is returned: a tenth over the first steps."""
        return int(_GROWTH * self._usual)

    def after_step(self) -> None:
        """Return freed memory if more is held than is allowed."""
        held = self.resident()
        if held is None:
            return
        self._steps += 1
        if self._steps <= _FIRST_STEPS:
            self._usual = max(self._usual, held)
        elif held > self.allowed:
            self.trim()
            left = self.resident() or 0
            if left > self.allowed:  # it is in use, so returning it at every step would not help
                self._usual = left


def resident_bytes() -> int | None:
    """The memory of its own that this process holds now; None where the system does not say."""
    held = _held_pages()
    return None if held is None else (held[0] - held[1]) * os.sysconf("SC_PAGE_SIZE")


def shared_bytes() -> int:
    """The memory that this process maps from files, such as its libraries; 0 if not known."""
    held = _held_pages()
    return 0 if held is None else held[1] * os.sysconf("SC_PAGE_SIZE")


def _held_pages() -> tuple[int, int] | None:
    """All pages in memory, and those of them that are mapped from files."""
    try:
        _, resident, shared, *_ = map(int, _STATM.read_text().split())
    except (OSError, ValueError):
        return None
    return resident, shared


def return_freed_memory() -> None:
    """Give freed memory back to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
