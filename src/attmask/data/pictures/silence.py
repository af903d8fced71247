"""Silence the messages of decoders about damaged pictures.

They name no file and repeat every epoch. Whatever matters is raised as an error that
names the picture.
"""

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOCK = threading.Lock()  # two threads that restore what the other had set aside would swap it
_NOWHERE = os.open(os.devnull, os.O_WRONLY)
_STDERR = 2
_LOUD = tuple(logging.getLogger(name) for name in ("tifffile", "PIL.TiffImagePlugin"))

if hasattr(os, "register_at_fork"):
    # A worker that is forked while another thread decodes would start with the lock held and
    # with nothing on its standard error.
    os.register_at_fork(
        before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release
    )


@contextmanager
def silent_library() -> Iterator[None]:
    """Nothing that libjpeg, libpng, libtiff or OpenCV prints reaches standard error.

    They offer no way to turn it off. What other threads print meanwhile is lost with it, so this
    goes around single calls of a decoder.
    """
    with _LOCK:
        try:
            kept = os.dup(_STDERR)
        except OSError:  # closed, as in a service without a terminal: nothing to keep quiet
            yield
            return
        os.dup2(_NOWHERE, _STDERR)
        try:
            yield
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


@contextmanager
def silent_reader() -> Iterator[None]:
    """Pillow and tifffile neither warn nor log."""
    before = [logger.disabled for logger in _LOUD]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in _LOUD:
            logger.disabled = True
        try:
            yield
        finally:
            for logger, disabled in zip(_LOUD, before, strict=True):
                logger.disabled = disabled
