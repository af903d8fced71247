"""Where a run stands and whether it is well, read from its folder."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attmask.errors import UserError
from attmask.heartbeat import OLD_SECONDS, Beat, read_beat, seconds_since
from attmask.history import read_history
from attmask.wording import counted, duration

STALLED_SECONDS = 600.0
"""So long may a step take before the run is called stalled."""
_WORDS = {
    "starting": "is starting",
    "training": "is training",
    "evaluating": "is being evaluated",
    "finished": "is finished",
    "stopped": "was stopped and saved",
    "failed": "has failed",
    "killed": "was killed: its process has ended without a word",
    "silent": "gives no sign of life",
    "stalled": "is stalled: its process is there, but finishes no step",
    "left": "is not being trained, and has no heartbeat",
}


@dataclass(frozen=True)
class Status:
    """The state of a run; what is not known is None."""

    run: str
    state: str
    """starting, training, evaluating, finished, stopped, failed, killed, silent, stalled, left."""
    step: int | None
    steps: int | None
    epoch: int | None
    epochs: int | None
    loss: float | None
    images_per_second: float | None
    seconds_left: float | None
    skipped_steps: int
    went_back: int
    """How often the run went back to a checkpoint with a lower learning rate."""
    findings: tuple[str, ...]
    """What is wrong with the training, a line each."""
    error: str | None
    host: str | None
    pid: int | None
    user: str | None
    since: str | None
    processes: int | None
    seconds_since_heartbeat: float | None
    seconds_since_step: float | None
    checkpoint: str | None
    checkpoint_step: int | None
    seconds_since_checkpoint: float | None

    @property
    def is_well(self) -> bool:
        """Whether nobody has to look after the run."""
        well = self.state in ("starting", "training", "evaluating", "finished", "stopped")
        return well and not self.findings

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {**asdict(self), "is_well": self.is_well}

    def rows(self) -> list[tuple[str, str]]:
        """Names and values for people."""
        rows = [("step", self._progress())]
        if self.images_per_second is not None and self.state in ("training", "evaluating"):
            rows.append(("speed", f"{self.images_per_second:,.1f} images/s"))
        if self.seconds_left is not None and self.state in ("training", "evaluating"):
            rows.append(("time left", duration(self.seconds_left)))
        if self.loss is not None:
            rows.append(("loss", f"{self.loss:.4f}"))
        rows += [("health", line) for line in self._health()]
        rows.append(("checkpoint", self._checkpoint()))
        if self.host is not None:
            count = "" if (self.processes or 1) == 1 else f", {self.processes} processes"
            rows.append(("process", f"{self.pid} of {self.user} on {self.host}{count}"))
        if self.seconds_since_heartbeat is not None:
            rows.append(("heartbeat", f"{duration(self.seconds_since_heartbeat)} ago"))
        return rows

    def headline(self) -> str:
        """One line for people."""
        return f"{self.run} {_WORDS[self.state]}{_advice(self)}"

    def _progress(self) -> str:
        if self.step is None or self.steps is None:
            return "not known"
        epochs = "" if self.epoch is None else f", epoch {self.epoch + 1} of {self.epochs}"
        share = 100 * self.step / max(1, self.steps)
        return f"{self.step:,} of {self.steps:,} ({share:.1f} %{epochs})"

    def _health(self) -> list[str]:
        lines = list(self.findings)
        if self.error is not None:
            lines.append(self.error)
        if self.skipped_steps:
            lines.append(f"{counted(self.skipped_steps, 'step')} skipped: not finite")
        if self.went_back:
            lines.append(f"went back {counted(self.went_back, 'time')}: not finite")
        return lines or ["well"]

    def _checkpoint(self) -> str:
        if self.checkpoint_step is None or self.seconds_since_checkpoint is None:
            return "none yet"
        return f"step {self.checkpoint_step:,}, {duration(self.seconds_since_checkpoint)} ago"


def read_status(run: Path) -> Status:
    """Read the state of a run from its folder, also while another machine trains it."""
    beat, checkpoint = read_beat(run), _newest_checkpoint(run)
    if beat is None and checkpoint is None:
        raise UserError(f"{run} holds no run; give a folder that `attmask pretrain` has made")
    step = int(checkpoint.name.partition("-")[2]) if checkpoint else None
    held = beat.model_dump(include={"steps", "epoch", "epochs", "loss"}) if beat else {}
    holder = beat.holder if beat else None
    return Status(
        run=str(run),
        state=_state(beat),
        step=step if beat is None or beat.step is None else beat.step,
        steps=held.get("steps"),
        epoch=held.get("epoch"),
        epochs=held.get("epochs"),
        loss=held.get("loss"),
        images_per_second=beat.images_per_second if beat else None,
        seconds_left=beat.seconds_left if beat else None,
        skipped_steps=beat.skipped_steps if beat else 0,
        went_back=len(read_history(run).returns),
        findings=beat.findings if beat else (),
        error=beat.error if beat else None,
        host=holder.host if holder else None,
        pid=holder.pid if holder else None,
        user=holder.user if holder else None,
        since=holder.since if holder else None,
        processes=len(beat.processes) if beat else None,
        seconds_since_heartbeat=seconds_since(beat.time) if beat else None,
        seconds_since_step=seconds_since(beat.step_time) if beat and beat.step_time else None,
        checkpoint=str(checkpoint) if checkpoint else None,
        checkpoint_step=step,
        seconds_since_checkpoint=_age(checkpoint),
    )


def _state(beat: Beat | None) -> str:
    """The state in the heartbeat, unless nobody can have it any more."""
    if beat is None:
        return "left"
    if not beat.is_held:
        return beat.state
    lives = beat.holder.lives
    if lives is False:
        return "killed"
    if lives is None and seconds_since(beat.time) > OLD_SECONDS:
        return "silent"
    last = beat.step_time or beat.holder.since
    if beat.state == "training" and seconds_since(last) > STALLED_SECONDS:
        return "stalled"
    return beat.state


def _newest_checkpoint(run: Path) -> Path | None:
    """Without `checkpoint`, which imports PyTorch: a look at a run is to be quick."""
    found = sorted(path.parent for path in run.glob("checkpoints/step-*/state.json"))
    return found[-1] if found else None


def _age(path: Path | None) -> float | None:
    try:
        return None if path is None else max(0.0, time.time() - path.stat().st_mtime)
    except OSError:  # removed meanwhile
        return None


def _advice(status: Status) -> str:
    if status.state in ("stopped", "failed", "killed", "left"):
        return f"; attmask resume {status.run} goes on"
    if status.state == "silent":
        return f"; look at {status.host}, or go on elsewhere with attmask resume {status.run}"
    return ""
