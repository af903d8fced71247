"""The checkpoints of a training: copied between two steps, written while it goes on."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import NoReturn

import torch

from attmask import atomic, distributed
from attmask.agreement import SharedError, together
from attmask.checkpoint import Checkpoint, CheckpointConfig
from attmask.divergence import DivergedError, SkippedSteps
from attmask.errors import UserError
from attmask.run import CHECKPOINTS, RunFolder, amount
from attmask.saving import BackgroundWriter
from attmask.state import TrainingState
from attmask.wording import counted

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0  # between two looks for the folder of the run
_SETTLE_SECONDS = 1.0  # until whoever removes a folder has come to its end


class RemovedFolderError(SharedError):
    """The folder of a run was removed while it trained."""


class Checkpointing:
    """Saves the state of a training in the folder of its run, and restores it from there."""

    def __init__(
        self,
        folder: RunFolder,
        state: TrainingState,
        scaler: torch.amp.GradScaler,
        skipped: SkippedSteps,
        config: CheckpointConfig,
        *,
        steps_per_epoch: int,
        about: Mapping[str, object] | None = None,
    ) -> None:
        """`about` is written into every checkpoint, for whoever reads it alone."""
        self.folder, self.state = folder, state
        self._scaler, self._skipped = scaler, skipped
        self._config = config
        self._about = about or {}
        self._every_seconds = config.every_minutes * 60
        every = config.keep_every_epochs
        self._keep_every_steps = None if every is None else every * steps_per_epoch
        self._looked_at = time.monotonic()
        self._writer = BackgroundWriter()
        self.saved_step: int | None = None
        """The step of the newest checkpoint, written or being written."""
        self._saved_at = time.monotonic()

    def restore(self) -> int:
        """Restore the newest checkpoint, if there is one; the step that it was saved at."""
        found = self.folder.resume(self.state.wanted_groups)
        if found is None:
            return 0
        self._require_same_classes(found)
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
        self._skipped.count = int(found.info.get("skipped_steps", 0))
        return found.step

    def _require_same_classes(self, found: Checkpoint) -> None:
        """Raise an error if the annotations mean something else than those that were trained on."""
        for name in ("classes", "values", "category_ids"):
            here, there = self._about.get(name), found.info.get(name)
            if here is not None and there is not None and here != there:
                called = name.replace("_", " ")
                raise UserError(
                    f"{self.folder.path} holds a run with the {called} {_short(there)}, but the "
                    f"annotations have {_short(here)}; restore them, or choose another --out"
                )

    def say_what_is_kept(self, total_steps: int) -> None:
        """Say what `checkpoint.keep_every_epochs` will take, and warn if the disk is too small."""
        if not distributed.is_main():
            return
        size, keep = self.state.checkpoint_bytes, self._config.keep
        every = self._keep_every_steps
        count = keep
        if every is not None:
            # The last one counts among the newest too.
            count += total_steps // every - (total_steps % every == 0)
            log.info(
                "keeps %s of %s, %s in all: the newest %d, and that of every %s",
                counted(count, "checkpoint"),
                amount(size),
                amount(count * size),
                keep,
                counted(self._config.keep_every_epochs or 1, "epoch"),
            )
        # One more is written before the oldest is removed.
        more = (count + 1 - self.folder.count_checkpoints()) * size
        if (free := self.folder.free_bytes()) < more:
            log.warning(
                "the checkpoints to come take %s, but the disk of %s has %s free; make room, or "
                "keep fewer (checkpoint.keep, checkpoint.keep_every_epochs)",
                amount(more),
                self.folder.path,
                amount(free),
            )

    def is_due(self) -> bool:
        """Whether the newest checkpoint is old enough for another one, or its folder is gone."""
        now = time.monotonic()
        if distributed.is_main() and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            if self.folder.removed():
                return True
        return now - self._saved_at >= self._every_seconds

    def is_kept(self, step: int) -> bool:
        """Whether the checkpoint of a step is kept for ever, so that it must be written."""
        return self._keep_every_steps is not None and step % self._keep_every_steps == 0

    def save(self, step: int) -> None:
        """Copy the state after a step, unless it is saved already, and begin to write it.

        Training may go on meanwhile; `finish` waits for the checkpoint.
        """
        removed = distributed.from_main(self.folder.removed())
        if removed is not None:
            self._save_again(step, removed, together())
        if self.saved_step != step:
            self.finish()
            self._begin(step)

    def _begin(self, step: int) -> None:
        if not self.state.is_finite():
            raise DivergedError(step, f"weights or moments are not finite after step {step}")
        made, scaler = self.state.snapshot(), self._scaler.state_dict()
        progress = {**self._about, "scaler": scaler, "skipped_steps": self._skipped.count}
        writer = distributed.from_main(atomic.new_writer()) if made.shards else None
        self._writer.start(
            lambda: self.folder.save(
                step,
                made.tensors,
                progress,
                is_kept=self.is_kept(step),
                shards=made.shards,
                writer=writer,
            )
        )
        self.saved_step, self._saved_at = step, time.monotonic()

    def _save_again(
        self, step: int, removed: Path, in_all: AbstractContextManager[None]
    ) -> NoReturn:
        """Save into a folder that was removed under the run, and stop."""
        with suppress(UserError):  # it may have been removed in the middle of a checkpoint
            self.finish()
        lost = "its checkpoints" if removed.name == CHECKPOINTS else "its log and checkpoints"
        gone = f"{removed} was removed or renamed while the run was training, and {lost} with it"
        time.sleep(_SETTLE_SECONDS)
        try:
            with in_all:
                if distributed.is_main():
                    self.folder.write_again()
            self._begin(step)
            self.finish()
            if self.folder.removed():
                raise UserError(f"{removed} was removed once more")
        except UserError as fault:
            raise RemovedFolderError(
                f"{gone}; saving step {step} there again failed too: {fault}"
            ) from fault
        raise RemovedFolderError(
            f"{gone}; the state was saved there again at step {step}: the same command resumes"
        )

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

    def save_after(self, fault: UserError, step: int) -> bool:
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
        if isinstance(fault.__cause__, FileNotFoundError):
            time.sleep(_SETTLE_SECONDS)  # the folder is perhaps being removed
        try:
            if not alone:
                self.save(step)
            elif (removed := self.folder.removed()) is not None:
                self._save_again(step, removed, nullcontext())
            elif self.saved_step != step:
                self._begin(step)
            self.finish()
        except RemovedFolderError:
            raise  # it says more than the error that came first
        except UserError:  # nothing is lost but what cannot be saved
            return False
        return True


def _short(values: object) -> str:
    """A list of names or numbers, shortened in the middle of a message."""
    text = ", ".join(map(str, values)) if isinstance(values, list) else str(values)
    return text if len(text) <= 60 else f"{text[:57]}..."
