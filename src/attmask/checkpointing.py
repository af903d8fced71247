"""The checkpoints of a training: copied between two steps, written while it goes on."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from attmask import atomic, distributed
from attmask.agreement import SharedError
from attmask.checkpoint import CheckpointConfig
from attmask.divergence import DivergedError
from attmask.errors import UserError
from attmask.run import RunFolder
from attmask.saving import BackgroundWriter
from attmask.state import TrainingState

log = logging.getLogger(__name__)


class Checkpointing:
    """Saves the state of a training in the folder of its run, and restores it from there."""

    def __init__(
        self,
        folder: RunFolder,
        state: TrainingState,
        scaler: torch.amp.GradScaler,
        config: CheckpointConfig,
    ) -> None:
        self.folder, self.state = folder, state
        self._scaler = scaler
        self._every_seconds = config.every_minutes * 60
        self._writer = BackgroundWriter()
        self.saved_step: int | None = None
        """The step of the newest checkpoint, written or being written."""
        self.skipped_steps = 0
        """Of the run, up to that step."""
        self._saved_at = time.monotonic()

    def restore(self) -> int:
        """Restore the newest checkpoint, if there is one; the step that it was saved at."""
        found = self.folder.resume(self.state.wanted_groups)
        if found is None:
            return 0
        try:
            self.state.restore(found)
            self._scaler.load_state_dict(found.info["scaler"])
        except (KeyError, RuntimeError, ValueError, TypeError) as fault:
            why = next(iter(str(fault).splitlines()), "")[:100]
            raise UserError(
                f"{found.path} does not fit the settings of its run ({why}); use another checkpoint"
            ) from fault
        if not self.state.is_finite():
            raise UserError(f"{found.path} has NaN or infinite weights; use another checkpoint")
        self.saved_step = found.step
        self.skipped_steps = int(found.info.get("skipped_steps", 0))
        return found.step

    def is_due(self) -> bool:
        """Whether the newest checkpoint is old enough for another one."""
        return time.monotonic() - self._saved_at >= self._every_seconds

    def save(self, step: int, *, skipped_steps: int = 0) -> None:
        """Copy the state after a step, unless it is saved already, and begin to write it.

        Training may go on meanwhile; `finish` waits for the checkpoint.
        """
        if self.saved_step == step:
            return
        self.finish()
        if not self.state.is_finite():
            raise DivergedError(step, f"weights or moments are not finite after step {step}")
        made, scaler = self.state.snapshot(), self._scaler.state_dict()
        progress = {"scaler": scaler, "skipped_steps": skipped_steps}
        writer = distributed.from_main(atomic.new_writer()) if made.shards else None
        self._writer.start(
            lambda: self.folder.save(
                step, made.tensors, progress, shards=made.shards, writer=writer
            )
        )
        self.saved_step, self._saved_at = step, time.monotonic()

    def finish(self) -> None:
        """Wait until the checkpoint that is being written is on the disk."""
        with self._noting_failures():
            self._writer.wait()

    def check(self) -> None:
        """Raise the error of a checkpoint that could not be written meanwhile."""
        with self._noting_failures():
            self._writer.check()

    @contextmanager
    def _noting_failures(self) -> Iterator[None]:
        """A step whose checkpoint could not be written is not saved."""
        try:
            yield
        except BaseException:
            self.saved_step = None
            raise

    def save_after(self, fault: UserError, step: int, *, skipped_steps: int) -> bool:
        """Save what can be saved after an error; whether the step is on the disk.

        All processes save together where all have the error, otherwise the main one alone.
        """
        alone = distributed.world_size() > 1 and not isinstance(fault, SharedError)
        if alone and self.state.is_sharded:
            return False  # it takes all processes to put the weights together
        try:
            self.finish()
        except UserError as failed:
            log.warning("%s", failed)
        try:
            self.save(step, skipped_steps=skipped_steps)
            self.finish()
        except UserError:  # nothing is lost but what cannot be saved
            return False
        return True
