"""Groups by hash: the quick way finds what comparing all with all finds."""

import itertools
import time
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.audit.links import (
    Groups,
    Link,
    differing_bits,
    groups_of_equals,
    near_links,
    near_pairs,
)

HASHES = st.integers(0, 2**64 - 1)


@st.composite
def crowded(draw: st.DrawFn) -> list[int]:
    """Hashes around a few centres, so that many are near, some just not."""
    centres = draw(st.lists(HASHES, min_size=1, max_size=3))
    turned = st.sets(st.integers(0, 63), max_size=7)
    return [
        draw(st.sampled_from(centres)) ^ sum(1 << bit for bit in draw(turned))
        for _ in range(draw(st.integers(0, 24)))
    ]


def groups_of_near(hashes: Sequence[int | None]) -> list[list[int]]:
    """The groups without a look into the mirror."""
    groups = Groups(len(hashes))
    groups.join(near_links(hashes, [None] * len(hashes)))
    return groups.members()


def distance(one: int, other: int) -> int:
    return bin(one ^ other).count("1")


@given(crowded(), st.integers(0, 6))
def test_bands_find_exactly_the_pairs_that_comparing_all_with_all_finds(
    hashes: list[int], most: int
) -> None:
    pairs = itertools.combinations(range(len(hashes)), 2)
    wanted = [list(pair) for pair in pairs if distance(hashes[pair[0]], hashes[pair[1]]) <= most]
    assert near_pairs(np.array(hashes, dtype=np.uint64), most).tolist() == wanted


@given(crowded())
def test_groups_are_the_connected_parts_of_the_pairs(hashes: list[int]) -> None:
    parts = [{index} for index in range(len(hashes))]
    for one, other in itertools.combinations(range(len(hashes)), 2):
        if distance(hashes[one], hashes[other]) <= 4:
            left = next(part for part in parts if one in part)
            right = next(part for part in parts if other in part)
            if left is not right:
                parts.remove(right)
                left |= right
    wanted = sorted(sorted(part) for part in parts if len(part) > 1)
    assert groups_of_near(list(hashes)) == wanted


@given(HASHES, HASHES)
def test_differing_bits_are_counted_one_by_one(one: int, other: int) -> None:
    pair = np.array([[one], [other]], dtype=np.uint64)
    assert differing_bits(pair[0], pair[1]).tolist() == [distance(one, other)]


@given(st.lists(st.one_of(st.none(), st.sampled_from([5, 7, 2**63])), max_size=12))
def test_a_picture_without_a_hash_is_in_no_group(hashes: list[int | None]) -> None:
    grouped = {index for group in groups_of_near(hashes) for index in group}
    assert all(hashes[index] is not None for index in grouped)


@given(st.lists(st.sampled_from("abc")))
def test_equals_are_grouped_in_order_and_singles_left_out(keys: list[str]) -> None:
    groups = groups_of_equals(keys)
    assert groups == sorted(groups)
    assert all(len({keys[index] for index in group}) == 1 < len(group) for group in groups)
    single = [key for key in keys if keys.count(key) == 1]
    assert sum(map(len, groups)) == len(keys) - len(single)


@pytest.mark.parametrize("same", [False, True])
def test_a_hundred_thousand_pictures_are_compared_in_seconds_also_when_all_are_the_same(
    same: bool,
) -> None:
    hashes = np.random.default_rng(0).integers(0, 2**64, 100_000, dtype=np.uint64)
    hashes = np.full_like(hashes, 3) if same else hashes
    hashes[-1] = hashes[0] ^ np.uint64(0b1111)
    began = time.process_time()
    groups = groups_of_near(hashes.tolist())
    assert time.process_time() - began < 5
    assert groups == [list(range(100_000))] if same else [[0, 99_999]]


def test_a_flipped_hash_links_two_pictures_as_flipped_and_a_symmetric_one_with_nobody() -> None:
    hashes = [0, 2**64 - 1, 0xFFFF, None]
    flipped = [0xFFFF0000, 2**64 - 1, 0xFFFF << 32, None]
    assert list(near_links(hashes, flipped)) == []
    hashes[2] = 0xFFFF0000 ^ 0b111
    groups = Groups(4)
    groups.join(near_links(hashes, flipped))
    assert groups.members() == [[0, 2]]
    assert groups.seen_from(0) == {2: Link(0, 2, flipped=True)}


def test_what_pictures_need_to_become_the_first_adds_up_along_the_links() -> None:
    groups = Groups(5)
    groups.join(
        [
            Link(0, 1, flipped=True),
            Link(2, 1, flipped=True, cropped=True),
            Link(2, 3, flipped=True),
            Link(0, 3),  # known already by way of 1 and 2
        ]
    )
    assert groups.members() == [[0, 1, 2, 3]]
    assert groups.seen_from(0) == {
        1: Link(0, 1, flipped=True),
        2: Link(0, 2, cropped=True),
        3: Link(0, 3, flipped=True, cropped=True),
    }
    assert groups.seen_from(4) == {}
