import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.subset import spread_evenly
from attmask.errors import UserError


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    limit=st.integers(1, 80),
)
def test_a_limited_choice_is_as_equal_over_classes_as_can_be(counts: list[int], limit: int) -> None:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    chosen = spread_evenly(labels, len(labels), limit)
    assert len(chosen) == min(limit, len(labels))
    assert chosen == sorted(set(chosen))
    taken = [sum(labels[i] == label for i in chosen) for label in range(len(counts))]
    room = [t for t, count in zip(taken, counts, strict=True) if t < count]
    assert not room or max(taken) - min(room) <= 1


def test_a_limited_choice_is_evenly_spaced() -> None:
    assert spread_evenly([0] * 8 + [1] * 4, 12, 4) == [0, 4, 8, 10]
    assert spread_evenly(None, 10, 5) == [0, 2, 4, 6, 8]
    assert spread_evenly(None, 3, None) == [0, 1, 2]
    with pytest.raises(UserError, match="at least 1"):
        spread_evenly(None, 3, 0)
