import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attmask.evaluation.metrics.ranking import (
    DIFFICULTIES,
    KS,
    Answer,
    Difficulty,
    Truth,
    average,
    average_precision,
    judge,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "retrieval.json").read_text()
)


def plain_answer(ranking: list[int], wanted: list[int], ignored: list[int]) -> Answer:
    """Step down the ranking without junk, adding one trapezoid for each right image."""
    clean = [image for image in ranking if image not in ignored]
    area, right, last = 0.0, 0, 0
    for place, image in enumerate(clean):
        if image in wanted:
            before = right / place if place else 1.0
            right, last = right + 1, place + 1
            area += (before + right / (place + 1)) / 2 / len(wanted)
    precision = {}
    for k in KS:
        first = clean[: min(k, last)]
        precision[k] = sum(image in wanted for image in first) / len(first) if first else 0.0
    return Answer(area, precision)


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_all_numbers_equal_the_benchmark_s_own(difficulty: Difficulty) -> None:
    expected = GOLDEN["expected"][difficulty]
    ranks = np.array(GOLDEN["ranks"], dtype=np.int64)
    answers = []
    for query, row in enumerate(GOLDEN["gnd"]):
        truth = Truth(*(tuple(row[key]) for key in ("easy", "hard", "junk")))
        answers.append(judge(ranks[:, query], truth.wanted(difficulty), truth.ignored(difficulty)))
    aps = [None if answer is None else answer.average_precision for answer in answers]
    assert [ap is None for ap in aps] == [ap is None for ap in expected["aps"]]
    assert [ap for ap in aps if ap is not None] == pytest.approx(
        [ap for ap in expected["aps"] if ap is not None], abs=1e-12
    )
    mean = average(answers)
    assert mean is not None
    assert mean.average_precision == pytest.approx(expected["map"], abs=1e-12)
    assert [mean.precision[k] for k in KS] == pytest.approx(expected["mp"], abs=1e-12)


@settings(max_examples=200)
@given(seed=st.integers(0, 100_000), images=st.integers(1, 30), ranked=st.integers(0, 30))
def test_an_answer_equals_a_plain_walk_down_the_ranking(
    seed: int, images: int, ranked: int
) -> None:
    draw = np.random.default_rng(seed)
    ranking = draw.permutation(images)[:ranked]
    group = draw.integers(0, 3, images)  # 0 wrong, 1 wanted, 2 ignored
    group[draw.integers(images)] = 1
    wanted, ignored = (np.flatnonzero(group == g).tolist() for g in (1, 2))
    answer = judge(ranking, wanted, ignored)
    expected = plain_answer(ranking.tolist(), wanted, ignored)
    assert answer is not None
    assert answer.average_precision == pytest.approx(expected.average_precision, abs=1e-12)
    assert answer.precision == pytest.approx(expected.precision, abs=1e-12)


def test_a_perfect_ranking_scores_one() -> None:
    assert judge(np.array([3, 1, 0, 2]), [1, 3]) == Answer(1.0, {1: 1.0, 5: 1.0, 10: 1.0})


def test_one_right_image_at_the_second_place_is_worth_a_quarter() -> None:
    # Precision is 0 before and 1/2 after: the trapezoid's mean is 1/4.
    assert average_precision(np.array([1]), 1) == 0.25


def test_ignored_images_do_not_move_the_score() -> None:
    with_junk = judge(np.array([9, 4, 8, 2, 7, 0]), [4, 0], [9, 8, 7])
    assert with_junk == judge(np.array([4, 2, 0]), [4, 0])


def test_precision_stops_at_the_last_right_image() -> None:
    answer = judge(np.arange(20), [0, 2])
    assert answer is not None
    assert answer.precision == {1: 1.0, 5: 2 / 3, 10: 2 / 3}


def test_an_image_that_is_not_in_the_ranking_was_never_found() -> None:
    assert judge(np.array([0, 1]), [0, 7]) == Answer(0.5, {1: 1.0, 5: 1.0, 10: 1.0})
    assert judge(np.array([0, 1]), [7]) == Answer(0.0, {1: 0.0, 5: 0.0, 10: 0.0})


def test_queries_without_right_images_do_not_count() -> None:
    assert judge(np.arange(3), []) is None
    mean = average([None, Answer(0.5, {1: 1.0}), None, Answer(1.0, {1: 0.0})])
    assert mean is not None
    assert (mean.average_precision, mean.precision, mean.queries) == (0.75, {1: 0.5}, 2)
    assert average([None]) is None


def test_difficulties_differ_in_what_is_wanted_and_what_is_ignored() -> None:
    truth = Truth(easy=(1,), hard=(2,), junk=(3,))
    assert (truth.wanted("easy"), set(truth.ignored("easy"))) == ((1,), {2, 3})
    assert (set(truth.wanted("medium")), truth.ignored("medium")) == ({1, 2}, (3,))
    assert (truth.wanted("hard"), set(truth.ignored("hard"))) == ((2,), {1, 3})
