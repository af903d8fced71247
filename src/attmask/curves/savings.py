"""How much sooner a run reaches the final result of a baseline, with an interval over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from scipy import stats

from attmask.wording import counted

CONFIDENCE = 0.95
_EARLY = 0.9  # of its epochs; a baseline that was at its final value before is told


def first_epoch_reaching(
    epochs: Float64[np.ndarray, " n"],
    values: Float64[np.ndarray, " n"],
    target: float,
    *,
    higher_is_better: bool = True,
) -> float | None:
    """The epoch at which the best value so far reaches the target; None if it never does.

    Between two evaluations the best value so far is taken to change linearly.
    """
    sign = 1.0 if higher_is_better else -1.0
    best, before = -np.inf, float("nan")
    for epoch, value in zip(epochs, sign * values, strict=True):
        if value >= sign * target:
            if not np.isfinite(best) or value == best:
                return float(epoch)
            return float(before + (epoch - before) * (sign * target - best) / (value - best))
        best, before = max(best, value), epoch
    return None


@dataclass(frozen=True)
class Reached:
    """How one run compares with the end of a baseline run."""

    run: str
    epoch: float | None
    """When it reaches the final value of the baseline; None if never."""
    baseline_epochs: float

    @property
    def saving(self) -> float | None:
        """The share of the baseline's epochs that are saved; negative if it takes longer."""
        return None if self.epoch is None else 1 - self.epoch / self.baseline_epochs


@dataclass(frozen=True)
class Savings:
    """The savings of a group of runs, usually the seeds of one setting."""

    group: str
    baseline: str
    measure: str
    unit: str
    target: float
    """The final value of the baseline, the mean over its seeds."""
    reached: Sequence[Reached]
    baseline_reached: float | None = None
    """When the baseline itself first had its final value, the mean over its seeds: on a flat or
    noisy curve long before its end."""

    @property
    def mean(self) -> float | None:
        """The mean share of epochs saved by the runs that reach the target."""
        known = self._known()
        return float(np.mean(known)) if known else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean (Student's t), which ends at all epochs saved.

        None with fewer than two runs, and if a run never reaches the target: those that do would
        be a choice of the better ones.
        """
        known = self._known()
        if len(known) < 2 or len(known) < len(self.reached):
            return None
        error = float(np.std(known, ddof=1)) / len(known) ** 0.5
        width = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(known) - 1)) * error
        return float(np.mean(known)) - width, min(1.0, float(np.mean(known)) + width)

    def _known(self) -> list[float]:
        return [each.saving for each in self.reached if each.saving is not None]

    @property
    def sentence(self) -> str:
        """The comparison in one sentence."""
        wanted = f"{self.baseline}'s final {self.measure} of {self.target:.3g} {self.unit}".rstrip()
        runs, never = len(self.reached), sum(each.epoch is None for each in self.reached)
        if self.mean is None:
            many = f" in any of {counted(never, 'run')}" if never > 1 else ""
            return f"{self.group} never reaches {wanted}{many}."
        some = f" in {runs - never} of {counted(runs, 'run')}, there" if never else ""
        reaching = [each for each in self.reached if each.epoch is not None]
        epochs = [each.epoch for each in reaching if each.epoch is not None]
        total = np.mean([each.baseline_epochs for each in reaching])
        how = f"with {abs(100 * self.mean):.0f} % {'fewer' if self.mean >= 0 else 'more'} epochs"
        notes = [f"at epoch {np.mean(epochs):.1f} of {total:g}"]
        if self.baseline_reached is not None and self.baseline_reached < _EARLY * total:
            notes.append(f"{self.baseline} itself was there at epoch {self.baseline_reached:.1f}")
        if self.interval is not None:
            low, high = (100 * end for end in self.interval)
            notes.append(f"95 % interval {low:.0f} to {high:.0f} % over {len(epochs)} seeds")
        if early := sum(epoch <= 0 for epoch in epochs):
            notes.append(f"in {counted(early, 'run')} before training, so this proves nothing")
        return f"{self.group} reaches {wanted}{some} {how} ({'; '.join(notes)})."
