"""The region proposal network: which anchors are trained on, and what it proposes."""

import pytest
import torch
from torch import Tensor
from torchvision.models.detection.image_list import ImageList

from attmask.models.detection.config import ProposalsConfig
from attmask.models.detection.proposals import AnchorMatcher, ProposalNetwork, inside


def _network(stride: float = 4.0, **settings: object) -> ProposalNetwork:
    torch.manual_seed(0)
    return ProposalNetwork(8, [stride], ProposalsConfig(**settings))  # type: ignore[arg-type]


def test_anchors_match_by_iou_and_an_instance_also_gets_its_best_ones() -> None:
    overlaps = torch.tensor(
        [
            # positive, between, negative, best of 1, tie for the best of 1, best of 2: too bad
            [0.8, 0.5, 0.1, 0.0, 0.0, 0.0],
            [0.0, 0.1, 0.0, 0.4, 0.4, 0.1],
            [0.1, 0.0, 0.2, 0.0, 0.0, 0.25],
        ]
    )
    matches = AnchorMatcher(0.7, 0.3, 0.3)(overlaps)
    assert matches.tolist() == [0, -2, -1, 1, 1, -1]


def test_the_last_instance_wins_an_anchor_that_is_the_best_of_two() -> None:
    matches = AnchorMatcher(0.7, 0.3, 0.3)(torch.tensor([[0.6, 0.0], [0.5, 0.0]]))
    assert matches.tolist() == [1, -1]


def test_an_instance_that_no_anchor_touches_matches_none() -> None:
    matches = AnchorMatcher(0.7, 0.3, 0.3)(torch.zeros(1, 4))
    assert matches.tolist() == [-1] * 4


def test_anchors_across_the_border_are_not_inside() -> None:
    boxes = torch.tensor([[0.0, 0, 9, 9], [-1, 0, 9, 9], [0, 0, 20, 9], [0, 0, 9, 10]])
    assert inside(boxes, (10, 20)).tolist() == [True, False, False, False]


@pytest.mark.parametrize(("inside_only", "wanted"), [(True, [-1, 1, 0]), (False, [1, 1, 0])])
def test_labels_of_anchors_by_hand(inside_only: bool, wanted: list[int]) -> None:
    anchors = torch.tensor([[-1.0, 0, 9, 10], [0, 0, 10, 10], [10, 10, 19, 19]])
    target = {"boxes": torch.tensor([[0.0, 0, 10, 10]]), "size_hw": (20, 20)}
    network = _network(inside_only=inside_only)
    labels, matched = network.assign_targets_to_anchors([anchors], [target])
    assert labels[0].tolist() == wanted
    assert matched[0][1].tolist() == [0, 0, 10, 10]


def test_an_image_smaller_than_every_anchor_is_trained_on_all_of_them() -> None:
    anchors = torch.tensor([[-16.0, -16, 16, 16], [-12, -16, 20, 16]])
    target = {"boxes": torch.zeros(0, 4), "size_hw": (8, 8)}
    labels, _ = _network().assign_targets_to_anchors([anchors], [target])
    assert labels[0].tolist() == [0, 0]


def _propose(network: ProposalNetwork, features: Tensor, size_hw: tuple[int, int]) -> list[Tensor]:
    images = ImageList(torch.zeros(len(features), 3, 64, 64), [size_hw] * len(features))
    return list(network.eval()(images, {"0": features})[0])


def test_proposals_lie_in_the_image_without_its_padding() -> None:
    for boxes in _propose(_network(), torch.randn(2, 8, 16, 16), (40, 50)):
        assert len(boxes) > 1
        assert boxes.min() >= 0
        assert boxes[:, 2].max() <= 50
        assert boxes[:, 3].max() <= 40


def test_there_are_at_most_as_many_as_asked_for() -> None:
    network = _network(test_count=5)
    assert len(_propose(network, torch.randn(1, 8, 16, 16), (64, 64))[0]) <= 5


def test_an_image_without_a_proposal_is_one_itself() -> None:
    (boxes,) = _propose(_network(), torch.full((1, 8, 4, 4), torch.nan), (40, 50))
    assert boxes.tolist() == [[0, 0, 50, 40]]


def test_the_losses_are_means_over_the_sampled_anchors() -> None:
    network = _network(anchor_ratios=(1.0,), samples=8, inside_only=False)
    for parameter in network.head.parameters():
        torch.nn.init.zeros_(parameter)
    images = ImageList(torch.zeros(1, 3, 64, 64), [(64, 64)])
    # Anchors of 32 pixels, 4 apart: the two that are 2 off along x have an IoU of 30 / 34, those
    # that are 6 off or 4 off along y as well have less than 0.7.
    target = {"boxes": torch.tensor([[10.0, 0, 42, 32]]), "size_hw": (64, 64)}
    _, losses = network(images, {"0": torch.zeros(1, 8, 16, 16)}, [target])
    assert losses["rpn_class"].item() == pytest.approx(0.693147, abs=1e-5)
    # Two of 8 samples are off, by 2 / 32 of their width; smooth L1 with beta 1/9.
    assert losses["rpn_box"].item() == pytest.approx(2 * 0.5 * 9 * (2 / 32) ** 2 / 8, rel=1e-4)


def test_under_autocast_boxes_and_losses_are_float32() -> None:
    network = _network()
    images = ImageList(torch.zeros(1, 3, 64, 64), [(64, 64)])
    target = {"boxes": torch.tensor([[10.0, 0, 42, 32]]), "size_hw": (64, 64)}
    with torch.autocast("cpu", torch.bfloat16):
        features = torch.randn(1, 8, 16, 16).bfloat16()
        (boxes,), losses = network(images, {"0": features}, [target])
    assert {boxes.dtype, *(loss.dtype for loss in losses.values())} == {torch.float32}
    assert (boxes != boxes.bfloat16()).any()
