"""TensorBoard: the metrics as event files in RUN/tensorboard."""

from collections.abc import Mapping

from attmask.trackers.tracker import TrackedRun


class TensorBoard:
    """Writes event files; on resuming, TensorBoard forgets the steps to come."""

    def __init__(self, run: TrackedRun) -> None:
        # Imported here because it takes a second, and evaluations need none of it.
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.start_step)

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        """Add the metrics under their keys as tags."""
        self._board.add_scalar("epoch", epoch, step)
        for key, value in metrics.items():
            self._board.add_scalar(key, value, step)

    def close(self, failed: bool) -> None:
        """Write what is left."""
        self._board.close()
