"""A mask and what the host knows of it."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from attmask.mask import Mask

ROWS = st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=6)


@given(ROWS)
def test_places_are_the_hidden_patches_image_after_image(rows: list[list[bool]]) -> None:
    mask = Mask.count(torch.tensor(rows))
    image, patch = torch.tensor(rows).nonzero(as_tuple=True)
    assert torch.equal(mask.places.image, image)
    assert torch.equal(mask.places.patch, patch)
    assert mask.places.slot.tolist() == [i for row in rows for i in range(sum(row))]
    assert mask.counts.tolist() == [sum(row) for row in rows]
    assert (len(mask), mask.total) == (len(rows), sum(map(sum, rows)))


@given(ROWS)
def test_hidden_patches_come_first_each_kind_in_the_order_of_the_grid(
    rows: list[list[bool]],
) -> None:
    expected = [
        [i for i in range(7) if row[i]] + [i for i in range(7) if not row[i]] for row in rows
    ]
    assert Mask.count(torch.tensor(rows)).order.tolist() == expected


@given(ROWS, ROWS)
def test_joined_masks_follow_each_other(one: list[list[bool]], other: list[list[bool]]) -> None:
    joined = Mask.join([Mask.count(torch.tensor(rows)) for rows in (one, other)])
    assert joined.hidden.tolist() == [*one, *other]
    assert np.array_equal(joined.counts, joined.hidden.sum(1).numpy())
