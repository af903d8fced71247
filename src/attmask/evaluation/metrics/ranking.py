"""How good a ranking is: average precision and precision at k of the revisited benchmark.

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
    """Which database images show what a query shows: clearly, with difficulty, or too little."""

    easy: tuple[int, ...] = ()
    hard: tuple[int, ...] = ()
    junk: tuple[int, ...] = ()

    def wanted(self, difficulty: Difficulty) -> tuple[int, ...]:
        """The images that must be found."""
        return {"easy": self.easy, "medium": self.easy + self.hard, "hard": self.hard}[difficulty]

    def ignored(self, difficulty: Difficulty) -> tuple[int, ...]:
        """The images that neither help nor harm: they are taken out of the ranking."""
        more = {"easy": self.hard, "medium": (), "hard": self.easy}[difficulty]
        return self.junk + more


@dataclass(frozen=True)
class Answer:
    """How well one query was answered, as shares of one."""

    average_precision: float
    precision: Mapping[int, float]
    """By k."""


def judge(
    ranking: Int64[np.ndarray, " R"],
    wanted: Sequence[int],
    ignored: Sequence[int] = (),
    ks: Sequence[int] = KS,
) -> Answer | None:
    """One ranking of image numbers, the nearest first; None where nothing was wanted.

    What is wanted and not in the ranking counts as never found.
    """
    if not wanted:
        return None
    found = np.flatnonzero(np.isin(ranking, np.asarray(wanted)))
    skipped = np.flatnonzero(np.isin(ranking, np.asarray(ignored, dtype=np.int64)))
    ranks = found - np.searchsorted(skipped, found)
    precision = {k: _precision(ranks, k) for k in ks}
    return Answer(average_precision(ranks, len(wanted)), precision)


def average_precision(ranks: Int64[np.ndarray, " F"], wanted: int) -> float:
    """The area below the curve of precision over recall, by the trapezoid rule.

    `ranks` are those of the images that were found, from 0, ascending.
    """
    count = np.arange(len(ranks))
    # Just before an image is found; at the very top there is nothing before, and nothing wrong.
    before = np.where(ranks == 0, 1.0, count / np.maximum(ranks, 1))
    after = (count + 1) / (ranks + 1)
    return float((before + after).sum() / (2 * wanted))


def _precision(ranks: Int64[np.ndarray, " F"], k: int) -> float:
    """The share of right images among the first k, or up to the last right one if that is sooner:
    a query with two right images is not blamed for the eight that follow."""
    if not len(ranks):
        return 0.0
    depth = min(int(ranks[-1]) + 1, k)
    return float((ranks < depth).sum() / depth)


@dataclass(frozen=True)
class Average:
    """The mean over all queries that want something, as shares of one."""

    average_precision: float
    precision: Mapping[int, float]
    queries: int


def average(answers: Sequence[Answer | None]) -> Average | None:
    """The mean over all queries that have an answer; None where none has."""
    given = [answer for answer in answers if answer is not None]
    if not given:
        return None
    return Average(
        float(np.mean([answer.average_precision for answer in given])),
        {k: float(np.mean([answer.precision[k] for answer in given])) for k in given[0].precision},
        len(given),
    )
