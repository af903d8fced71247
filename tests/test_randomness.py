import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from attmask.randomness import uniform

COUNTER = st.integers(-(2**63), 2**63 - 1)
COUNTERS = st.lists(COUNTER, min_size=1, max_size=5)


def by_hand(purpose: str, *counters: int) -> float:
    """The same hash in plain integers modulo 2**64 (the finaliser of SplitMix64)."""
    full = 2**64 - 1
    state = zlib.crc32(purpose.encode())
    for counter in counters:
        x = ((state ^ (counter & full)) * 0xBF58476D1CE4E5B9 + 0x9E3779B97F4A7C15) & full
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & full
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & full
        state = x ^ (x >> 31)
    return (state >> 11) / 2**53


@given(purpose=st.text(max_size=8), counters=COUNTERS)
def test_a_draw_is_the_hash_of_its_counters(purpose: str, counters: list[int]) -> None:
    drawn = uniform(purpose, *counters)
    assert drawn.dtype == np.float64
    assert drawn.item() == by_hand(purpose, *counters)


def test_draws_never_change() -> None:
    # Made once by `by_hand`: a resumed run must draw what the run before it would have drawn.
    assert uniform("mask ratio", 0, 0).item() == 0.03915361259336547
    assert uniform("drop path", 7, 123, 5, 1, 3, 0).item() == 0.9410225138469281


@given(COUNTERS)
def test_draws_are_at_least_zero_and_below_one(counters: list[int]) -> None:
    assert 0 <= uniform("limits", *counters).item() < 1


@given(seed=COUNTER, images=st.lists(COUNTER, min_size=1, max_size=6), view=COUNTER)
def test_a_draw_does_not_depend_on_its_neighbours(seed: int, images: list[int], view: int) -> None:
    together = uniform("mask", seed, np.array(images), view)
    alone = [uniform("mask", seed, image, view).item() for image in images]
    assert together.tolist() == alone


def test_counters_broadcast() -> None:
    rows, columns = np.arange(3)[:, None], np.arange(4)
    drawn = uniform("grid", 1, rows, columns)
    assert drawn.shape == (3, 4)
    assert drawn[2, 3] == uniform("grid", 1, 2, 3)


def test_every_counter_and_the_purpose_and_their_order_matter() -> None:
    draws = [
        uniform("a", 1, 2, 3),
        uniform("b", 1, 2, 3),
        uniform("a", 0, 2, 3),
        uniform("a", 1, 0, 3),
        uniform("a", 1, 2, 0),
        uniform("a", 2, 1, 3),
        uniform("a", 1, 3, 2),
        uniform("a", 1, 2),
        uniform("a", 1, 2, 3, 0),
    ]
    assert len({draw.item() for draw in draws}) == len(draws)


def test_a_hundred_thousand_draws_are_all_different() -> None:
    drawn = np.unique(uniform("many", np.arange(100)[:, None], np.arange(1000)))
    assert drawn.size == 100_000


def test_draws_are_uniform_along_every_counter() -> None:
    count = 20_000
    index = np.arange(count)
    for drawn in (uniform("u", index, 0, 0), uniform("u", 0, index, 0), uniform("u", 0, 0, index)):
        ranks = np.arange(1, count + 1) / count
        distance = np.abs(np.sort(drawn) - ranks).max()
        assert distance < 1.95 / np.sqrt(count)  # Kolmogorov-Smirnov, one in a thousand


def test_neighbouring_counters_and_purposes_are_independent() -> None:
    count = 20_000
    index = np.arange(count)
    first = uniform("u", 5, index, 0)
    others = {
        "the next draw": np.roll(first, 1),
        "another seed": uniform("u", 6, index, 0),
        "another view": uniform("u", 5, index, 1),
        "another purpose": uniform("v", 5, index, 0),
    }
    for name, other in others.items():
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / np.sqrt(count), name
