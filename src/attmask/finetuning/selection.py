"""The evaluations of a training: which was the best, and whether more training is of use."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Evaluation:
    """What was measured after a number of epochs."""

    epoch: int
    value: float
    """Of the metric that selects, of which more is better."""


def evaluations(records: Iterable[Mapping[str, Any]], key: str) -> list[Evaluation]:
    """The evaluations in the log of a run, in order; of one that was repeated, the last."""
    found = {int(record["epoch"]): float(record[key]) for record in records if key in record}
    return [Evaluation(epoch, found[epoch]) for epoch in sorted(found)]


def best_of(found: Sequence[Evaluation]) -> Evaluation:
    """The best; of equal ones, the earliest."""
    return max(found, key=lambda each: (each.value, -each.epoch))


def is_exhausted(found: Sequence[Evaluation], patience: int | None) -> bool:
    """Whether as many evaluations as `patience` allows came after the best."""
    if patience is None or not found:
        return False
    best = best_of(found)
    return sum(each.epoch > best.epoch for each in found) >= patience
