"""The guard: features in training are held against those that the training started from.

Where there are labels, it reads k-NN accuracy. Elsewhere it reads two measures, because features
are ruined in two ways. In a collapse they crowd together: the spread of different images falls,
while two views of an image come closer, even relative to that spread. In noise they stay apart, but
two views of an image are as far apart as two images. So both are held against the start, and the
worse one counts. The effective rank is not used: it may fall while k-NN accuracy rises.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attmask.adaptation.config import GuardConfig

KNN = "knn.top1"
ALIGNMENT, UNIFORMITY = "label_free.alignment", "label_free.uniformity"
_SMALLEST = 1e-12


@dataclass(frozen=True)
class Evaluation:
    """What was measured after a number of epochs."""

    epoch: int
    values: Mapping[str, float]
    """The metrics that the guard reads, by their keys; not a number if they are not finite."""


def evaluation(epoch: int, values: Mapping[str, Any]) -> Evaluation | None:
    """The metrics that the guard reads; None if there are none."""
    found = {
        key: math.nan if values[key] is None else float(values[key])
        for key in (KNN, ALIGNMENT, UNIFORMITY)
        if key in values
    }
    return Evaluation(epoch, found) if found else None


def evaluations(records: Iterable[Mapping[str, Any]]) -> list[Evaluation]:
    """The evaluations in the log of a run, in order; of one that was repeated, the last."""
    found = {int(record["epoch"]): record for record in records if "loss.total" not in record}
    known = (evaluation(epoch, found[epoch]) for epoch in sorted(found))
    return [each for each in known if each is not None]


def spread(values: Mapping[str, float]) -> float:
    """The squared distance between two images on the unit sphere, as uniformity has it.

    Points whose squared distances all are d have a uniformity of -2 d.
    """
    return -values.get(UNIFORMITY, math.nan) / 2


def view_distance(values: Mapping[str, float]) -> float:
    """The squared distance between two views of an image, relative to that between two images."""
    return values.get(ALIGNMENT, math.nan) / max(_SMALLEST, spread(values))


class Guard:
    """Decides which evaluation is the best, which are worse than the start, and when to end.

    Everything follows from the evaluations, so a resumed run decides as one that never stopped.
    """

    def __init__(
        self,
        config: GuardConfig,
        found: Sequence[Evaluation] = (),
        kept: Iterable[int] | None = None,
    ) -> None:
        """`kept` has the epochs whose weights still exist, of which one is the best (None: all)."""
        self.config = config
        self._found = {each.epoch: each for each in found}
        self._kept = set(self._found) if kept is None else set(kept)

    @property
    def found(self) -> list[Evaluation]:
        """The evaluations so far, in order."""
        return [self._found[epoch] for epoch in sorted(self._found)]

    @property
    def start(self) -> Evaluation | None:
        """The evaluation before the first step; None if there was none."""
        return self._found.get(0)

    def see(self, new: Evaluation) -> None:
        """Take an evaluation; it replaces an earlier one of the same epoch."""
        self._found[new.epoch] = new
        self._kept.add(new.epoch)

    @property
    def has_labels(self) -> bool:
        """Whether k-NN accuracy was measured at the start."""
        return self.start is not None and KNN in self.start.values

    def quality(self, each: Evaluation) -> float:
        """What is compared, of which more is better; what is not a number is the worst."""
        values = each.values
        value = values.get(KNN, math.nan) if self.has_labels else self._share_kept(values)
        return value if math.isfinite(value) else -math.inf

    def _share_kept(self, values: Mapping[str, float]) -> float:
        """What is left of the spread of images and of the closeness of views, whichever is less."""
        if self.start is None:
            return math.nan
        first = self.start.values
        each = (spread(values), spread(first), view_distance(values), view_distance(first))
        if not all(map(math.isfinite, each)):
            return math.nan
        wide, wide_first, apart, apart_first = (max(_SMALLEST, number) for number in each)
        return min(wide / wide_first, apart_first / apart)

    def is_worse(self, each: Evaluation) -> bool:
        """Whether features are worse than at the start, by more than is tolerated."""
        if self.start is None:
            return False
        start = self.quality(self.start)
        if self.has_labels:
            return self.quality(each) < start - self.config.tolerance
        return self.quality(each) < start * (1 - self.config.tolerance_without_labels)

    @property
    def worse_in_a_row(self) -> int:
        """How many of the last evaluations are worse than the start."""
        count = 0
        for each in reversed(self.found):
            if not self.is_worse(each):
                break
            count += 1
        return count

    @property
    def best(self) -> Evaluation | None:
        """The best of those whose weights exist, the start included; of equal ones, the latest."""
        there = (each for each in self.found if each.epoch in self._kept)
        return max(there, key=lambda each: (self.quality(each), each.epoch), default=None)

    @property
    def is_over(self) -> bool:
        """Whether as many evaluations in a row were worse as patience allows."""
        patience = self.config.patience
        return patience is not None and self.worse_in_a_row >= patience

    def said(self, each: Evaluation) -> str:
        """The measure of an evaluation, for people."""
        if self.has_labels:
            return f"k-NN {each.values.get(KNN, math.nan):.2f} %"
        return (
            f"spread of images {spread(each.values):.3f} and distance between views "
            f"{view_distance(each.values):.3f} of it"
        )

    def warning(self) -> str | None:
        """What is wrong with the last evaluation, in one line; None if nothing is."""
        count, start = self.worse_in_a_row, self.start
        if not count or start is None:
            return None
        last = self.found[-1]
        return (
            f"the features are worse than those that training started from: {self.said(last)} "
            f"after epoch {last.epoch}, {self.said(start)} at the start ({count} of at most "
            f"{self.config.patience} evaluations in a row)"
        )

    def verdict(self) -> str:
        """How the features compare with the start, in one line."""
        start, best = self.start, self.best
        if start is None:
            return "the guard had no evaluation before the first step to compare with"
        last = self.found[-1]
        kept = "no network is kept"
        if best is not None:
            which = "the starting weights" if best.epoch == 0 else f"epoch {best.epoch}"
            kept = f"the best network, {which} ({self.said(best)}), is kept"
        compared = (
            f"{self.said(start)} at the start, {self.said(last)} after epoch {last.epoch}; {kept}"
        )
        if self.is_over:
            count = self.worse_in_a_row
            return f"the guard has ended the training, {count} evaluations in a row: {compared}"
        return compared
