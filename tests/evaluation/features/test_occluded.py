import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attmask.evaluation.features.crops import CenterCrop, crop_pixels
from attmask.evaluation.features.occluded import Occluded, attention_ranks
from attmask.masking import Draws, High
from attmask.models.backbone import BackboneConfig

TINY = BackboneConfig(name="vit_tiny_patch16_224", width=24, depth=2, heads=2, patch_size=8)


def attention(images: int, patches: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.rand(images, patches, generator=draw).mul(20).round()  # with many ties


def picture(height: int = 40, width: int = 56, channels: int = 3) -> np.ndarray:
    draw = np.random.default_rng(0)
    return draw.integers(1, 256, (height, width, channels), dtype=np.uint8)


def occluded(ratio: float, ranks: np.ndarray, size: int = 32) -> Occluded:
    return Occluded(size, ratio, ranks, reference="abc")


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000), side=st.integers(1, 14), ratio=st.floats(0, 1, allow_subnormal=False)
)
def test_the_same_patches_are_black_as_attmask_high_hides(
    seed: int, side: int, ratio: float
) -> None:
    given = attention(3, side**2, seed)
    draws = Draws(0, 0, 0, np.arange(3), (ratio, ratio), "step")
    expected = High()(given, (side, side), draws).hidden
    crop_of = occluded(ratio, attention_ranks(given), size=4 * side)
    for i in range(3):
        crop = crop_of(picture(), i)
        black = (crop == 0).all(dim=0)
        blocks = black.view(side, 4, side, 4)
        assert torch.equal(blocks.all(dim=3).all(dim=1), expected[i].view(side, side))
        assert torch.equal(blocks.any(dim=3).any(dim=1), expected[i].view(side, side))


def test_what_is_not_black_is_the_centre_crop_as_it_was() -> None:
    crop = occluded(0.5, attention_ranks(attention(1, 16)))(picture(channels=4), 0)
    whole = crop_pixels(picture(channels=4), 32)
    assert crop.shape == (4, 32, 32)
    assert int((crop == 0).all(dim=0).sum()) == 8 * 64
    assert torch.equal(torch.where(crop == 0, whole, crop), whole)


@pytest.mark.parametrize(
    ("ratio", "hidden"), [(0.1, 19), (0.3, 58), (0.5, 98), (0.7, 137), (1.0, 196)]
)
def test_the_number_of_black_patches_is_rounded_down(ratio: float, hidden: int) -> None:
    assert occluded(ratio, attention_ranks(attention(1, 196))).hidden == hidden


def test_ranks_count_from_the_most_attended_and_of_equals_the_first_comes_first() -> None:
    ranks = attention_ranks(torch.tensor([[0.2, 0.5, 0.2, 0.1], [0.1, 0.1, 0.1, 0.1]]))
    assert ranks.tolist() == [[1, 0, 2, 3], [0, 1, 2, 3]]
    assert ranks.dtype == np.uint16


def test_ranks_do_not_depend_on_how_many_are_sorted_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = attention(23, 49)
    whole = attention_ranks(given)
    monkeypatch.setattr("attmask.evaluation.features.occluded._ROWS_AT_ONCE", 5)
    np.testing.assert_array_equal(attention_ranks(given), whole)


def test_a_grid_that_does_not_divide_the_crop_is_stretched_over_it() -> None:
    ranks = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8]], dtype=np.uint16)
    black = (occluded(1 / 9, ranks, size=32)(picture(), 0) == 0).all(dim=0)
    # A third of 32 lines is 10.67: the first patch has those whose middle lies in it.
    assert black.nonzero().amax(dim=0).tolist() == [10, 10]
    assert int(black.sum()) == 11 * 11
    alone = [occluded(1 / 9, np.roll(ranks, i, axis=1), size=32) for i in range(9)]
    shown = sum(int((e(picture(), 0) == 0).all(dim=0).sum()) for e in alone)
    assert shown == 32 * 32  # each pixel belongs to one patch


def test_all_that_decides_the_pixels_is_in_the_description() -> None:
    ranks = attention_ranks(attention(2, 16))
    other = attention_ranks(attention(2, 16, seed=1))
    different = [
        occluded(0.5, ranks),
        occluded(0.6, ranks),
        occluded(0.5, other),
        occluded(0.5, ranks, size=40),
        Occluded(32, 0.5, ranks, reference="another"),
    ]
    assert len({str(each.describe()) for each in different}) == len(different)
    assert occluded(0.5, ranks.copy()).describe() == different[0].describe()


def test_with_nothing_black_it_is_the_centre_crop() -> None:
    ours = occluded(0.0, attention_ranks(attention(1, 16)))(picture(), 0)
    assert torch.equal(ours, CenterCrop(32)(picture(), 0))
