"""Masks of a plan have the numbers that the strategies draw."""

import numpy as np
import pytest
import torch

from attmask.masking import Block, High, Hint, Low, Masker, Nothing, Random, Strategy
from attmask.planning.masks import CountedMasks, expected_masks, largest_masks

GRID = (14, 14)
STRATEGIES = pytest.mark.parametrize("strategy", [High(), Low(), Hint(), Random(), Block()])


def drawn(masker: Masker, images: int, steps: int) -> np.ndarray:
    """The numbers of hidden patches: step, view, image."""
    attention = torch.zeros(images, 196)
    return np.stack(
        [
            [masker.mask(attention, GRID, step=step, view=view).counts for view in range(2)]
            for step in range(steps)
        ]
    )


def test_a_counted_mask_hides_what_it_says() -> None:
    masks = CountedMasks(High(), total=50, most=20)
    mask = masks.mask(torch.rand(4, 196), GRID, step=3, view=1)
    assert mask.counts.tolist() == [20, 20, 10, 0]
    assert mask.hidden.sum(dim=1).tolist() == [20, 20, 10, 0]


@STRATEGIES
def test_the_expected_numbers_are_those_of_many_steps(strategy: Strategy) -> None:
    masker = Masker(strategy, probability=0.5, seed=1)
    masks, counts = expected_masks(masker, 12, GRID), drawn(masker, 12, 40)
    assert masks.total == pytest.approx(counts.sum(axis=2).mean(), rel=0.12)
    assert masks.most == pytest.approx(counts.max(axis=(1, 2)).mean(), rel=0.12)


@STRATEGIES
def test_no_step_hides_more_than_the_largest_masks(strategy: Strategy) -> None:
    masker = Masker(strategy, probability=0.5, seed=1)
    masks, counts = largest_masks(masker, 12, GRID), drawn(masker, 12, 40)
    assert masks.total >= counts.sum(axis=(1, 2)).max() / 2
    assert masks.most == 98 >= counts.max()
    assert masks.total <= 12 * 98


@pytest.mark.parametrize("choose", [largest_masks, expected_masks])
@pytest.mark.parametrize("masker", [Masker(Nothing()), Masker(High(), probability=0.0)])
def test_where_nothing_is_masked_nothing_is_counted(choose: object, masker: Masker) -> None:
    assert callable(choose)
    masks = choose(masker, 8, GRID)
    assert (masks.total, masks.most) == (0, 0)


def test_with_masks_in_every_view_all_are_counted() -> None:
    masks = largest_masks(Masker(High(), probability=1.0), 8, GRID)
    assert (masks.total, masks.most) == (8 * 98, 98)
