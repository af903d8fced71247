"""TensorBoard: the metrics as event files in RUN/tensorboard."""

import threading
from collections.abc import Mapping

from attmask.trackers.tracker import TrackedRun


class TensorBoard:
    """Writes event files; on resuming, TensorBoard forgets the steps to come."""

    def __init__(self, run: TrackedRun) -> None:
        # Imported here because it takes a second, and evaluations need none of it.
        from torch.utils.tensorboard import SummaryWriter

        self._hook = threading.excepthook
        threading.excepthook = self._note
        self._board = SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.start_step)

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        """Add the metrics under their keys as tags."""
        self._board.add_scalar("epoch", epoch, step)
        for key, value in metrics.items():
            self._board.add_scalar(key, value, step)

    def close(self, failed: bool) -> None:
        """Write what is left."""
        try:
            self._board.flush()  # raises what a thread that has ended met; close would wait
            self._board.close()
        finally:
            threading.excepthook = self._hook

    def _note(self, failed: threading.ExceptHookArgs) -> None:
        """TensorBoard's thread raises what its next call raises again, so it need not be shown."""
        thread = type(failed.thread).__module__
        if not (issubclass(failed.exc_type, OSError) and thread.startswith("tensorboard.")):
            self._hook(failed)
