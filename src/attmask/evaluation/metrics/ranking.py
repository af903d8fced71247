"""Average precision and precision at k of a ranking, as in the revisited benchmark.

Radenović et al., Revisiting Oxford and Paris, CVPR 2018, section 3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Int64

Difficulty: TypeAlias = Literal["medium", "hard", "easy"]

DIFFICULTIES: tuple[Difficulty, ...] = ("medium", "hard", "easy")
KS = (1, 5, 10)


@dataclass(frozen=True)
class Truth:
    """The database images that show the landmark of a query: easy, hard or junk."""

    easy: tuple[int, ...] = ()
    hard: tuple[int, ...] = ()
    junk: tuple[int, ...] = ()

    def wanted(self, difficulty: Difficulty) -> tuple[int, ...]:
        """The images that should be retrieved."""
        return {"easy": self.easy, "medium": self.easy + self.hard, "hard": self.hard}[difficulty]

    def ignored(self, difficulty: Difficulty) -> tuple[int, ...]:
        """The images that are removed from the ranking."""
        more = {"easy": self.hard, "medium": (), "hard": self.easy}[difficulty]
        return self.junk + more


@dataclass(frozen=True)
class Answer:
    """The results of one query, from 0 to 1."""

    average_precision: float
    precision: Mapping[int, float]
    """By k."""


def judge(
    ranking: Int64[np.ndarray, " R"],
    wanted: Sequence[int],
    ignored: Sequence[int] = (),
    ks: Sequence[int] = KS,
) -> Answer | None:
    """Evaluate a ranking of image indices, nearest first; None if `wanted` is empty.

    Wanted images that are not in the ranking count as not retrieved.
    """
    if not wanted:
        return None
    found = np.flatnonzero(np.isin(ranking, np.asarray(wanted)))
    skipped = np.flatnonzero(np.isin(ranking, np.asarray(ignored, dtype=np.int64)))
    ranks = found - np.searchsorted(skipped, found)
    precision = {k: _precision(ranks, k) for k in ks}
    return Answer(average_precision(ranks, len(wanted)), precision)


def average_precision(ranks: Int64[np.ndarray, " F"], wanted: int) -> float:
    """The area under the precision-recall curve, by the trapezoidal rule.

    `ranks` are the ranks of the retrieved images, from 0, ascending.
    """
    count = np.arange(len(ranks))
    # The precision just before a retrieved image; at rank 0 it is defined as 1.
    before = np.where(ranks == 0, 1.0, count / np.maximum(ranks, 1))
    after = (count + 1) / (ranks + 1)
    return float((before + after).sum() / (2 * wanted))


def _precision(ranks: Int64[np.ndarray, " F"], k: int) -> float:
    """The precision among the first k, or up to the last right image if that comes earlier, so
    that a query with two right images can reach 1 at k = 10."""
    if not len(ranks):
        return 0.0
    depth = min(int(ranks[-1]) + 1, k)
    return float((ranks < depth).sum() / depth)


@dataclass(frozen=True)
class Average:
    """The means over all queries with a right image, from 0 to 1."""

    average_precision: float
    precision: Mapping[int, float]
    queries: int


def average(answers: Sequence[Answer | None]) -> Average | None:
    """The mean over all queries that have an answer; None if none has."""
    given = [answer for answer in answers if answer is not None]
    if not given:
        return None
    return Average(
        float(np.mean([answer.average_precision for answer in given])),
        {k: float(np.mean([answer.precision[k] for answer in given])) for k in given[0].precision},
        len(given),
    )
