"""Matching, sampling, changes and the loss of boxes, by hand."""

import math

import pytest
import torch
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler

from attmask.models.detection.boxes import box_coder, giou_loss, match, refine, sample
from tests.models.detection.detectors import instances

TRUTH = torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]])


def test_a_box_matches_the_instance_of_the_largest_iou_from_the_threshold_on() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 5], [0, 0, 10, 4.9], [20, 22, 30, 32], [50, 50, 60, 60]])
    # IoU 0.5 is enough; 0.49 is not; 8 / 12 = 0.67 is.
    assert match(boxes, TRUTH, 0.5).tolist() == [0, -1, 1, -1]
    assert match(boxes, TRUTH, 0.7).tolist() == [-1] * 4


def test_without_instances_or_boxes_nothing_matches() -> None:
    assert match(TRUTH, torch.zeros(0, 4), 0.5).tolist() == [-1, -1]
    assert match(torch.zeros(0, 4), TRUTH, 0.5).tolist() == []


def test_an_empty_box_matches_no_empty_instance() -> None:
    point = torch.tensor([[5.0, 5, 5, 5]])
    assert match(point, point, 0.5).tolist() == [-1]


def _sampler(count: int, fraction: float = 0.5) -> BalancedPositiveNegativeSampler:
    return BalancedPositiveNegativeSampler(count, fraction)


def test_samples_are_proposals_and_the_instances_themselves() -> None:
    proposals = torch.tensor([[0.0, 0, 10, 9], [40, 40, 50, 50], [21, 20, 31, 30]])
    truth = instances((0, 0, 10, 10), (20, 20, 30, 30))
    samples = sample(proposals, truth, classes=2, positive_iou=0.5, sampler=_sampler(10))
    assert samples.boxes.tolist() == [
        [0, 0, 10, 10],
        [20, 20, 30, 30],
        [0, 0, 10, 9],
        [21, 20, 31, 30],
        [40, 40, 50, 50],
    ]
    assert samples.labels.tolist() == [0, 1, 0, 1, 2]
    assert samples.matches.tolist() == [0, 1, 0, 1, -1]
    assert samples.added.tolist() == [True, True, False, False, False]
    assert samples.positive.tolist() == [True, True, True, True, False]


def test_samples_are_so_many_and_at_most_a_share_of_them_is_positive() -> None:
    near = torch.tensor([[0.0, 0, 10, 10]]).repeat(50, 1)
    far = torch.tensor([[40.0, 40, 50, 50]]).repeat(50, 1)
    truth = instances((0, 0, 10, 10))
    samples = sample(
        torch.cat([near, far]), truth, classes=2, positive_iou=0.5, sampler=_sampler(16, 0.25)
    )
    assert len(samples.boxes) == 16
    assert samples.positive.tolist() == [True] * 4 + [False] * 12


def test_an_empty_instance_still_matches_itself() -> None:
    samples = sample(
        TRUTH, instances((5, 5, 5, 5)), classes=2, positive_iou=0.5, sampler=_sampler(8)
    )
    assert samples.labels.tolist() == [0, 2, 2]


def test_an_image_without_instances_is_background() -> None:
    samples = sample(TRUTH, instances(), classes=2, positive_iou=0.5, sampler=_sampler(8))
    assert samples.labels.tolist() == [2, 2]
    assert not samples.added.any()


def test_the_same_seed_draws_the_same_samples() -> None:
    proposals = torch.rand(100, 4).mul(20) + torch.tensor([0.0, 0, 20, 20])
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        picked = sample(proposals, instances(), classes=1, positive_iou=0.5, sampler=_sampler(20))
        drawn.append(picked.boxes)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize("stds", [(0.1, 0.1, 0.2, 0.2), (0.033, 0.033, 0.067, 0.067)])
def test_changes_are_in_units_of_the_stds(stds: tuple[float, ...]) -> None:
    coder = box_coder(stds)
    box = torch.tensor([[10.0, 20, 30, 60]])  # 20 × 40 around (20, 40)
    decoded = coder.decode_single(torch.tensor([[1.0, -1, 2, -2]]), box)
    x, y = 20 + stds[0] * 20, 40 - stds[1] * 40
    width, height = 20 * math.exp(2 * stds[2]), 40 * math.exp(-2 * stds[3])
    wanted = [[x - width / 2, y - height / 2, x + width / 2, y + height / 2]]
    torch.testing.assert_close(decoded, torch.tensor(wanted))
    torch.testing.assert_close(
        coder.encode_single(decoded, box), torch.tensor([[1.0, -1, 2, -2]]), rtol=1e-4, atol=1e-4
    )


def test_refined_boxes_stay_in_the_image_and_finite() -> None:
    boxes = torch.tensor([[10.0, 10, 30, 30], [0, 0, 8, 8], [0, 0, 8, 8]])
    changes = torch.tensor([[0.0, 0, 0, 0], [-20, 0, 99, 0], [torch.nan, 0, 0, 0]])
    refined = refine(boxes, changes, box_coder((0.1, 0.1, 0.2, 0.2)), (25, 40))
    assert refined[0].tolist() == [10, 10, 30, 25]
    assert refined.isfinite().all()
    assert (refined >= 0).all()
    assert (refined[:, 2] <= 40).all()


def test_the_giou_loss_by_hand() -> None:
    truth = torch.tensor([[0.0, 0, 10, 10]])
    # Half over half: IoU 50 / 150, the box around both has 150. Far away: IoU 0, 200 of 900.
    half, far = torch.tensor([[5.0, 0, 15, 10]]), torch.tensor([[20.0, 20, 30, 30]])
    assert giou_loss(half, truth, 1).item() == pytest.approx(1 - 1 / 3)
    assert giou_loss(far, truth, 1).item() == pytest.approx(1 + 700 / 900)
    assert giou_loss(truth, truth, 1).item() == pytest.approx(0, abs=1e-6)


def test_the_giou_loss_is_divided_by_the_number_of_all_samples() -> None:
    truth = torch.tensor([[0.0, 0, 10, 10]]).repeat(2, 1)
    predicted = torch.tensor([[5.0, 0, 15, 10]]).repeat(2, 1)
    assert giou_loss(predicted, truth, 8).item() == pytest.approx(2 * (2 / 3) / 8)


def test_the_giou_loss_of_no_box_is_zero_with_a_gradient() -> None:
    predicted = torch.zeros(0, 4, requires_grad=True)
    loss = giou_loss(predicted, torch.zeros(0, 4), 0)
    loss.backward()
    assert loss.item() == 0
    assert predicted.grad is not None
