"""Training in the folder of a run: one group of processes at a time, with a heartbeat."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attmask import distributed
from attmask.agreement import together
from attmask.errors import UserError
from attmask.heartbeat import Heartbeat


@contextmanager
def hold(run: Path, heartbeat: Heartbeat | None = None) -> Iterator[Heartbeat]:
    """Hold the folder of a run while the block trains; all processes call it together."""
    heartbeat = heartbeat or Heartbeat(run)
    with together():
        if distributed.is_main():
            try:
                heartbeat.take()
            except OSError as fault:
                why = fault.strerror or fault
                raise UserError(
                    f"cannot use {run} for a run: {why}; make room or choose another --out"
                ) from fault
    heartbeat.update(processes=distributed.gather((socket.gethostname(), os.getpid())))
    try:
        yield heartbeat
    except BaseException as fault:
        heartbeat.release(str(fault) if isinstance(fault, UserError) else type(fault).__name__)
        raise
    heartbeat.release()
