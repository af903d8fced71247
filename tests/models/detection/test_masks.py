"""The truth of masks inside boxes, by hand, and the loss."""

import math

import pytest
import torch

from attmask.models.detection.masks import mask_loss, mask_targets

MASKS = torch.zeros(2, 8, 8, dtype=torch.uint8)
MASKS[0, 2:6, 2:6] = 1
MASKS[1, :, :4] = 1


def test_targets_are_the_cells_of_a_box_that_the_mask_covers() -> None:
    boxes = torch.tensor([[0.0, 0, 8, 8], [2, 2, 6, 6], [2, 0, 6, 4]])
    targets = mask_targets(MASKS, boxes, torch.tensor([0, 0, 1]), 4)
    square = [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    assert targets[0].tolist() == square
    assert targets[1].tolist() == [[1] * 4] * 4
    assert targets[2].tolist() == [[1, 1, 0, 0]] * 4


def test_cells_covered_by_half_count() -> None:
    boxes = torch.tensor([[1.0, 2, 5, 6], [1.5, 2, 5.5, 6]])
    # Cells of two pixels: half of the first column of the first box is in the mask, and three
    # quarters of that of the second; both interpolate at the centres of four points.
    targets = mask_targets(MASKS, boxes, torch.tensor([0, 0]), 2)
    assert targets[0].tolist() == [[1, 1], [1, 1]]
    assert targets[1].tolist() == [[1, 1], [1, 1]]
    shifted = mask_targets(MASKS, torch.tensor([[0.9, 2.0, 4.9, 6.0]]), torch.tensor([0]), 2)
    assert shifted[0].tolist() == [[0, 1], [0, 1]]


def test_without_instances_there_are_no_targets() -> None:
    none = torch.zeros(0).long()
    assert mask_targets(MASKS[:0], torch.zeros(0, 4), none, 28).shape == (0, 28, 28)


def test_the_loss_is_the_mean_binary_cross_entropy() -> None:
    logits = torch.tensor([[[0.0, 2.0], [-2.0, 0.0]]])
    targets = torch.tensor([[[1.0, 1.0], [1.0, 0.0]]])
    small, large = math.log1p(math.exp(-2)), math.log1p(math.exp(2))
    wanted = (2 * math.log(2) + small + large) / 4
    assert mask_loss(logits, targets).item() == pytest.approx(wanted)


def test_the_loss_of_no_mask_is_zero_with_a_gradient() -> None:
    logits = torch.zeros(0, 2, 2, requires_grad=True)
    loss = mask_loss(logits, torch.zeros(0, 2, 2))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
