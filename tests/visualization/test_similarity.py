import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attmask.errors import UserError
from attmask.visualization.similarity import (
    at_same_place,
    chosen_patch,
    similarity,
    similarity_sheets,
)
from tests.visualization.networks import network_of, seen_image


def test_the_similarity_is_the_cosine_of_every_patch_with_the_chosen_one() -> None:
    seen = seen_image()
    found = similarity(seen, (2, 3))
    for patch, value in zip(seen.patches, found, strict=True):
        expected = torch.nn.functional.cosine_similarity(patch, seen.patches[2 * 6 + 3], dim=0)
        assert value == pytest.approx(float(expected), abs=1e-5)
    assert found[2 * 6 + 3] == pytest.approx(1)


def test_without_a_choice_the_patch_is_the_most_attended() -> None:
    seen = seen_image()
    row, col = chosen_patch(seen, None)
    assert seen.on_grid(seen.attention)[row, col] == seen.attention.max()
    with pytest.raises(UserError, match=r"4 x 6 patches; use 0,0 to 3,5"):
        chosen_patch(seen, (4, 0))


@given(st.integers(1, 20), st.integers(1, 20), st.data())
def test_the_patch_at_the_same_place_holds_the_centre_of_the_first(
    side: int, other: int, data: st.DataObject
) -> None:
    row = data.draw(st.integers(0, side - 1))
    found, _ = at_same_place((row, 0), (side, 1), (other, 1))
    assert 0 <= found < other
    assert found / other <= (row + 0.5) / side < (found + 1) / other + 1e-9
    assert at_same_place((row, 0), (side, 1), (side, 1)) == (row, 0)


def test_all_networks_show_the_patch_that_the_last_one_attends_to() -> None:
    last = seen_image(1, grid=(8, 12))
    (sheet,) = similarity_sheets([network_of(seen_image()), network_of(last)], 8)
    row, col = chosen_patch(last, None)
    captions = [cells[0].caption for r in sheet.rows if (cells := r.cells) and cells[0]]
    assert captions == [f"row {row // 2}, column {col // 2}", f"row {row}, column {col}"]
    assert sheet.bar is not None
    assert (sheet.bar.low, sheet.bar.high) == ("≤ 0.00", "1.00")
