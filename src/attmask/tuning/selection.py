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
    """The best; of equal ones, the earliest, but any other before that of an untrained network."""
    return max(found, key=lambda each: (each.epoch > 0, each.value, -each.epoch))


def is_exhausted(found: Sequence[Evaluation], patience: int | None, *, since: int = 0) -> bool:
    """Whether as many evaluations as `patience` allows came after the best, and after an epoch."""
    if patience is None or not found:
        return False
    last = max(best_of(found).epoch, since)
    return sum(each.epoch > last for each in found) >= patience


def still_kept(found: Sequence[Evaluation], kept: Evaluation | None) -> list[Evaluation]:
    """The evaluations, without those that were better than the network that is kept.

    Such networks are lost: steps were trained again, or a folder was removed.
    """
    if kept is None:
        return []
    others = (each for each in found if each.epoch != kept.epoch)
    return sorted(
        [kept, *(each for each in others if best_of([each, kept]) == kept)],
        key=lambda each: each.epoch,
    )
