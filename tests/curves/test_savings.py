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
    said = group(50.0, 60.0).sentence
    assert "reaches block's final k-NN of 45.5 % with 45 % fewer epochs" in said
    assert "at epoch 55.0 of 100" in said
    assert "over 2 seeds" in said
    assert group(50.0, 60.0, None).sentence == (
        "high reaches block's final k-NN of 45.5 % in 2 of 3 runs, there with 45 % fewer epochs "
        "(at epoch 55.0 of 100)."
    ), "an interval over the runs that made it would leave out the others"
    assert group(None, None).sentence == (
        "high never reaches block's final k-NN of 45.5 % in any of 2 runs."
    )
    assert "10 % more epochs" in group(110.0).sentence


def test_a_target_below_the_untrained_network_is_said_to_prove_nothing() -> None:
    assert "before training" in group(0.0, 50.0).sentence


PERCENT = st.integers(0, 10_000).map(lambda hundredths: hundredths / 100)


@given(st.lists(PERCENT, min_size=1, max_size=12), PERCENT)
def test_the_epoch_is_where_the_curve_of_the_best_so_far_crosses_the_target(
    values: list[float], target: float
) -> None:
    found = reach(values, target)
    best = np.maximum.accumulate(values)
    epochs = 10.0 * np.arange(len(values))
    if best[-1] < target:
        assert found is None
        return
    assert found is not None
    fine = np.linspace(0, epochs[-1], 4001)
    crossed = fine[np.interp(fine, epochs, best) >= target - 1e-9][0]
    assert found == pytest.approx(crossed, abs=epochs[-1] / 4000 + 1e-6)


@given(st.lists(st.floats(0, 300), min_size=2, max_size=8))
def test_an_interval_holds_the_mean_and_never_saves_more_than_all_epochs(
    epochs: list[float],
) -> None:
    found = group(*epochs)
    assert found.mean is not None
    assert found.interval is not None
    low, high = found.interval
    assert low - 1e-9 <= found.mean <= high + 1e-9
    assert high <= 1


def test_seeds_against_baselines_of_different_length_are_told_by_their_means() -> None:
    reached = [Reached("a", 50.0, 100.0), Reached("b", 50.0, 200.0)]
    found = Savings("high", "block", "k-NN", "%", 45.5, reached)
    assert found.mean == pytest.approx((0.5 + 0.75) / 2)
    assert "at epoch 50.0 of 150" in found.sentence
