"""A number with a name, a unit and a direction, the same in logs, cards, tables and plots."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_KEY = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*(@[a-z0-9][a-z0-9_.+-]*)?")


@dataclass(frozen=True)
class Metric:
    """One number that was measured.

    The part of the key before the dot names the protocol, or the part of the training, that
    measures; the card names the task. So `knn.top1` is one key for the tasks `knn` and `knn-20`
    and for the k-NN in the log of a training. After the dot comes the measure, and after `@` a
    parameter of it: `knn.top1@10`, `occlusion.top1@0.3`.
    """

    key: str
    value: int | float
    unit: str
    """"%", "nats", "images", ...; empty for a plain number."""
    higher_is_better: bool | None
    """None where neither is."""
    spread: int | float | None = None
    """The sample standard deviation over repetitions, where there were several."""
    title: str = ""
    """The name for people; the key where none was given."""

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError(
                f"{self.key!r} is no key of a metric; use protocol.measure or "
                "protocol.measure@parameter in lower case, such as knn.top1@10"
            )
        object.__setattr__(self, "value", float(self.value))
        if not self.title:
            object.__setattr__(self, "title", self.key)


def check_unique(metrics: Sequence[Metric]) -> None:
    """Refuse two metrics of one key, of which a table could show only one."""
    keys = [metric.key for metric in metrics]
    if repeated := sorted({key for key in keys if keys.count(key) > 1}):
        raise ValueError(f"two metrics have the key {repeated[0]}; give each its own")


def values_by_key(metrics: Sequence[Metric]) -> dict[str, float]:
    """The numbers alone."""
    return {metric.key: metric.value for metric in metrics}


def best(metrics: Sequence[Metric | None]) -> list[bool]:
    """Which of several results of one metric are the best; none where the direction is unknown."""
    known = [metric for metric in metrics if metric is not None]
    directions = {metric.higher_is_better for metric in known}
    if len(known) < 2 or len(directions) != 1 or None in directions:
        return [False] * len(metrics)
    choose = max if directions == {True} else min
    wanted = choose(metric.value for metric in known)
    return [metric is not None and metric.value == wanted for metric in metrics]
