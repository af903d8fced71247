"""The metrics of a run for TensorBoard: an error of the disk ends them with a warning."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attmask.metric import Metric

log = logging.getLogger(__name__)


class Events:
    """TensorBoard's event files in one folder, which are copies: the run can do without them."""

    def __init__(self, folder: Path, *, purge_step: int) -> None:
        # Imported here because it takes a second, and evaluations need none of it.
        from torch.utils.tensorboard import SummaryWriter

        self._folder = folder
        self._writer: SummaryWriter | None = None
        self._hook = threading.excepthook
        threading.excepthook = self._note
        with self._warning():
            self._writer = SummaryWriter(str(folder), purge_step=purge_step)

    def add(self, metrics: Sequence[Metric], *, step: int, epoch: int) -> None:
        """Append the metrics of a step."""
        with self._warning():
            if self._writer is not None:
                self._writer.add_scalar("epoch", epoch, step)
                for metric in metrics:
                    self._writer.add_scalar(metric.key, metric.value, step)

    def close(self) -> None:
        """Write what is left."""
        with self._warning():
            if self._writer is not None:
                self._writer.flush()  # raises what a thread that has ended met; close would wait
                self._writer.close()
        threading.excepthook = self._hook

    @contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except OSError as fault:
            self._writer = None
            log.warning(
                "cannot write TensorBoard's events in %s: %s; the run goes on without them, and "
                "all metrics are in metrics.jsonl",
                self._folder,
                fault.strerror or fault,
            )

    def _note(self, failed: threading.ExceptHookArgs) -> None:
        """TensorBoard's thread raises what its next call raises again, so it need not be shown."""
        thread = type(failed.thread).__module__
        if not (issubclass(failed.exc_type, OSError) and thread.startswith("tensorboard.")):
            self._hook(failed)
