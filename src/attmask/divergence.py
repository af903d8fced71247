"""Steps whose loss or gradients are not finite: counted, recorded, and when a run goes back."""

import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from attmask import atomic, distributed
from attmask.agreement import SharedError
from attmask.hardware import Format
from attmask.host import to_host
from attmask.schedules import Now
from attmask.update import Report, Update

INCIDENTS = "incidents"
MOST_IN_A_ROW = 5
"""So many skipped steps in a row, and the run goes back."""
LOSS_SCALE_STEPS = 20
"""In fp16 as many more: skipping is how the scale of the loss is found."""
MOST_INCIDENTS = 20
"""So many are recorded by a process; the others are only counted."""

log = logging.getLogger(__name__)


class DivergedError(SharedError):
    """The training is no longer finite and must go back to a checkpoint."""

    def __init__(self, step: int, why: str) -> None:
        advice = "start again with a lower schedule.lr or with train.precision=fp32"
        super().__init__(f"{why}; {advice}")
        self.step = step


@dataclass(frozen=True)
class _Step:
    """A step whose numbers are on their way to the host."""

    now: Now
    samples: Sequence[int]
    finite: Callable[[], Tensor]
    loss: Callable[[], Tensor]
    norms: Callable[[], Tensor]


class SkippedSteps:
    """Reads after every step whether it was finite, a step later where a device works meanwhile.

    All processes read the same numbers, so they do the same. `names` gives the names of images by
    their numbers in the source, `weights` the state that is kept of the first such step, for which
    all processes are called.
    """

    def __init__(
        self,
        run: Path,
        device: torch.device,
        number_format: Format,
        *,
        names: Callable[[Sequence[int]], list[str]],
        parameters: Sequence[str],
        weights: Callable[[], dict[str, Tensor]],
    ) -> None:
        self.run = run
        self.count = 0
        """The skipped steps of the run."""
        self._names, self._parameters, self._weights = names, parameters, weights
        self._lag = 0 if device.type == "cpu" else 1
        self._limit = MOST_IN_A_ROW + (LOSS_SCALE_STEPS if number_format == "fp16" else 0)
        self.in_a_row = 0
        """Those up to the last step that was read."""
        self._recorded = 0
        self._waiting: deque[_Step] = deque()

    def add(self, now: Now, samples: Sequence[int], report: Report, update: Update) -> None:
        """Look at a step, or at the one before; DivergedError after several in a row."""
        sent = (to_host(t) for t in (update.finite, report.mean_loss, update.gradient_norms))
        self._waiting.append(_Step(now, samples, *sent))
        while len(self._waiting) > self._lag:
            self._judge(self._waiting.popleft())

    def settle(self) -> None:
        """Look at all steps that are not read yet, for instance before they are saved."""
        while self._waiting:
            self._judge(self._waiting.popleft())

    def _judge(self, step: _Step) -> None:
        if bool(step.finite()):
            self.in_a_row = 0
            return
        self.count += 1
        self.in_a_row += 1
        where = self._record(step) if self._recorded < MOST_INCIDENTS else self.run / INCIDENTS
        if distributed.is_main():
            log.warning(
                "step %d: the loss or a gradient is not finite (loss %.4g), so the step was "
                "skipped, %d in a row; its images are named in %s",
                step.now.step,
                float(step.loss()),
                self.in_a_row,
                where,
            )
        if self.in_a_row >= self._limit:
            raise DivergedError(
                step.now.step,
                f"loss or gradients were not finite in {self.in_a_row} steps in a row, up to "
                f"step {step.now.step}; see {self.run / INCIDENTS}",
            )

    def _record(self, step: _Step) -> Path:
        """Keep what is needed for a look at a step: images, numbers, and once the weights."""
        self._recorded += 1
        names = [name for own in distributed.gather(self._names(step.samples)) for name in own]
        weights = self._weights() if self._recorded == 1 else {}
        folder = self.run / INCIDENTS / f"step-{step.now.step:08d}"
        if distributed.is_main():
            norms = dict(zip(self._parameters, step.norms().tolist(), strict=True))
            about = {
                "loss": str(float(step.loss())),
                "schedule": vars(step.now),
                "not_finite": [n for n, norm in norms.items() if not _is_finite(norm)],
                "gradient_norms": {n: str(norm) for n, norm in norms.items()},
            }
            try:
                with atomic.folder(folder, replaces=lambda _: True) as part:
                    (part / "images.txt").write_text("".join(f"{name}\n" for name in names))
                    (part / "state.json").write_text(json.dumps(about, indent=1) + "\n")
                    if weights:
                        safetensors.torch.save_file(weights, part / "weights.safetensors")
            except (OSError, safetensors.SafetensorError) as fault:
                log.warning("cannot write %s: %s", folder, fault)
        return folder


def _is_finite(number: float) -> bool:
    return number - number == 0
