"""The sentence of the paper: the same accuracy with fewer epochs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from attmask.curves.savings import Reached, Savings, first_epoch_reaching


def reach(values: list[float], target: float, *, higher: bool = True) -> float | None:
    epochs = 10.0 * np.arange(len(values))
    return first_epoch_reaching(
        epochs, np.array(values, dtype=float), target, higher_is_better=higher
    )


def test_the_epoch_is_interpolated_between_evaluations() -> None:
    assert reach([20, 30, 40, 50], 45.0) == 25.0
    assert reach([20, 30, 40, 50], 30.0) == 10.0
    assert reach([20, 30], 15.0) == 0.0


def test_a_dip_does_not_count_against_the_best_so_far() -> None:
    assert reach([20, 40, 30, 50], 45.0) == 25.0, "from 40, the best so far, and not from 30"


def test_a_target_that_is_never_reached_is_none() -> None:
    assert reach([20, 30, 40], 41.0) is None
    assert reach([], 41.0) is None


def test_lower_may_be_better() -> None:
    assert reach([8, 6, 4], 5.0, higher=False) == 15.0
    assert reach([8, 6, 4], 3.0, higher=False) is None


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.floats(0, 100), st.floats(0, 50))
def test_a_higher_target_is_never_reached_sooner(
    values: list[float], target: float, more: float
) -> None:
    first, second = reach(values, target), reach(values, target + more)
    assert second is None or (first is not None and first <= second + 1e-9)


def group(*epochs: float | None) -> Savings:
    reached = [Reached(f"run {i}", epoch, 100.0) for i, epoch in enumerate(epochs)]
    return Savings("high", "block", "k-NN", "%", 45.5, reached)


def test_the_interval_is_students_over_seeds() -> None:
    found = group(50.0, 60.0, 70.0)
    assert found.mean == pytest.approx(0.4)
    low, high = found.interval or (0.0, 0.0)
    expected = stats.t.interval(0.95, 2, loc=0.4, scale=0.1 / 3**0.5)
    assert (low, high) == pytest.approx(expected)
    assert group(50.0).interval is None


def test_the_sentence_says_epochs_interval_and_what_never_got_there() -> None:
    said = group(50.0, 60.0, None).sentence
    assert "reaches block's final k-NN of 45.5 % with 45 % fewer epochs" in said
    assert "at epoch 55.0 of 100" in said
    assert "over 2 seeds" in said
    assert "1 run never reached it" in said
    assert group(None, None).sentence == (
        "high never reaches block's final k-NN of 45.5 % in any of 2 runs."
    )
    assert "10 % more epochs" in group(110.0).sentence


def test_a_target_below_the_untrained_network_is_said_to_prove_nothing() -> None:
    assert "before training" in group(0.0, 50.0).sentence
