import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.permutation import Permutation


def whole(count: int, *counters: int) -> np.ndarray:
    return Permutation("test", counters, count)(np.arange(count))


@given(count=st.integers(1, 3000), seed=st.integers(0, 5), epoch=st.integers(0, 5))
def test_every_number_comes_once(count: int, seed: int, epoch: int) -> None:
    assert np.array_equal(np.sort(whole(count, seed, epoch)), np.arange(count))


def test_every_number_of_a_million_comes_once() -> None:
    count = 1_000_003
    assert np.array_equal(np.bincount(whole(count, 1, 2)), np.ones(count))


def test_an_entry_does_not_depend_on_which_others_are_asked_for() -> None:
    order = Permutation("test", (3, 4), 2**30 + 7)
    places = np.array([0, 5, 2**30 + 6, 12345678])
    together = order(places)
    assert [int(order(np.array([place]))[0]) for place in places] == together.tolist()
    assert len(order) == 2**30 + 7
    with pytest.raises(IndexError, match="a place is not in a permutation of 1073741831"):
        order(np.array([2**30 + 7]))
    assert order(np.empty(0, dtype=np.int64)).shape == (0,)


def test_counters_and_purposes_give_permutations_that_agree_by_chance_alone() -> None:
    count = 20_000
    orders = [whole(count, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    orders.append(Permutation("other", (0, 0), count)(np.arange(count)))
    for first, one in enumerate(orders):
        for other in orders[first + 1 :]:
            assert (one == other).sum() < 12  # one on average
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(count)


@pytest.mark.parametrize("count", [2**16, 2**16 + 1, 99_991])
def test_neighbours_are_as_far_apart_as_in_a_random_order(count: int) -> None:
    order = whole(count, 7, 0).astype(np.float64)
    for lag in (1, 2, 64, 256, 1024):
        assert abs(np.corrcoef(order[:-lag], order[lag:])[0, 1]) < 5 / np.sqrt(count)
    steps = np.abs(np.diff(order))
    assert abs(steps.mean() / count - 1 / 3) < 0.01
    assert (steps == 1).sum() < 15  # two on average
    # Every stretch of places takes as many numbers from every stretch of numbers.
    counts, _, _ = np.histogram2d(np.arange(count), order, bins=16)
    expected = count / 256
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert 130 < chi_squared < 330  # 225 on average, sd 21
    # Low bits too: batches must not be made of even numbers alone.
    odd = (order[: count // 64 * 64] % 2).reshape(-1, 64).sum(axis=1)
    assert abs(odd.var() - 16) < 3


def test_draws_never_change() -> None:
    order = Permutation("order of many images", (0, 3), 1_000_000_000)
    assert order(np.arange(4)).tolist() == [431643613, 895891615, 702426339, 808765888]
