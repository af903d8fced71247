"""The stages, with heads that answer what the test says."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from attmask.models.detection.cascade import Cascade, choose
from attmask.models.detection.config import CascadeConfig, DetectionsConfig
from attmask.models.detection.heads import BoxHead
from tests.models.detection.detectors import instances

MAPS = [torch.zeros(1, 4, 16, 16)]
NONE = (0.0, 0.0, 0.0, 0.0)


class Answer(nn.Module):
    """A box head of fixed logits and changes, whatever it sees."""

    def __init__(self, logits: Sequence[float], changes: Sequence[Sequence[float]]) -> None:
        super().__init__()
        self.logits, self.changes = torch.tensor(logits), torch.tensor(changes)

    def forward(self, regions: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(regions), -1), self.changes.expand(len(regions), -1, -1)


class FlatMask(nn.Module):
    """A mask head of one logit per class."""

    def __init__(self, logits: Sequence[float]) -> None:
        super().__init__()
        self.logits = torch.tensor(logits)

    def forward(self, regions: Tensor) -> Tensor:
        return self.logits[None, :, None, None].expand(len(regions), -1, 28, 28)


class Pool:
    """Remembers the boxes whose features were asked for."""

    def __init__(self) -> None:
        self.boxes: list[tuple[int, list[list[float]]]] = []

    def __call__(self, maps: Sequence[Tensor], boxes: Sequence[Tensor], size: int) -> Tensor:
        together = torch.cat(list(boxes))
        self.boxes.append((size, together.tolist()))
        return torch.zeros(len(together), 4, size, size)


TWO_STAGES = CascadeConfig(
    positive_iou=(0.5, 0.7),
    loss_weights=(1.0, 0.5),
    box_stds=((0.1, 0.1, 0.2, 0.2), (0.05, 0.05, 0.1, 0.1)),
    samples=16,
    channels=4,
    hidden=8,
    convs=1,
)


def _cascade(
    boxes: Sequence[nn.Module], masks: Sequence[nn.Module], config: CascadeConfig = TWO_STAGES
) -> tuple[Cascade, Pool]:
    cascade, pool = Cascade(4, 2, (4.0,), config), Pool()
    cascade.pool = pool  # type: ignore[assignment]
    cascade.box_heads, cascade.mask_heads = nn.ModuleList(boxes), nn.ModuleList(masks)
    return cascade, pool


TRUTH = instances((50, 0, 60, 10), (0, 0, 20, 20))  # classes 0 and 1
# Near the second instance (IoU 0.9, and 0.6 by half a width of 10), and far from both.
PROPOSALS = torch.tensor([[0.0, 0, 20, 18], [5.0, 0, 25, 20], [30, 30, 50, 50]])


def test_each_stage_trains_on_the_refined_boxes_of_the_one_before() -> None:
    # The logits prefer class 0, whose boxes move right by 0.1 of their width; boxes of class 1
    # move down by 0.1 of their height.
    head = Answer([1.0, 0.0, 2.0], [(1.0, 0, 0, 0), (0, 1.0, 0, 0)])
    cascade, pool = _cascade([head, head], [FlatMask([0.0, 0.0])] * 2)
    cascade(MAPS, [PROPOSALS], [TRUTH])
    of_boxes = [boxes for size, boxes in pool.boxes if size == 7]
    own = TRUTH.boxes.tolist()
    assert of_boxes[0] == [*own, *PROPOSALS.tolist()]
    # Added instances are dropped and added anew. Positive boxes move as their true class, the
    # others as the best class besides the background.
    moved = [[0.0, 1.8, 20, 19.8], [5.0, 2, 25, 22], [32.0, 30, 52, 50]]
    torch.testing.assert_close(torch.tensor(of_boxes[1]), torch.tensor([*own, *moved]))


def test_masks_are_trained_on_the_positive_boxes_of_each_stage() -> None:
    head = Answer([1.0, 0.0, 2.0], [NONE, NONE])
    cascade, pool = _cascade([head, head], [FlatMask([0.0, 0.0])] * 2)
    cascade(MAPS, [PROPOSALS], [TRUTH])
    counts = [len(boxes) for size, boxes in pool.boxes if size == 14]
    # IoU of the proposals 0.9, 0.6 and 0: two positive ones from 0.5 on, one from 0.7 on.
    assert counts == [2 + 2, 2 + 1]


def test_losses_by_hand_with_the_weights_of_the_stages() -> None:
    head = Answer([0.0, 0.0, 0.0], [NONE, NONE])
    cascade, _ = _cascade([head, head], [FlatMask([0.0, 0.0])] * 2)
    losses = cascade(MAPS, [PROPOSALS], [TRUTH])
    names = ["class_1", "box_1", "mask_1", "class_2", "box_2", "mask_2"]
    assert list(losses) == names
    # Boxes that do not change: 1 - GIoU is 0.1 and 1 - 0.6, of five samples, times 10.
    wanted = [
        math.log(3),
        10 * (0.1 + 0.4) / 5,
        math.log(2),
        0.5 * math.log(3),
        0.5 * 10 * 0.1 / 5,
        0.5 * math.log(2),
    ]
    assert [losses[name].item() for name in names] == pytest.approx(wanted, abs=1e-5)


def test_each_stage_moves_boxes_by_its_own_stds() -> None:
    right = Answer([3.0, 0.0, 0.0], [(1.0, 0, 0, 0)] * 2)
    paper = CascadeConfig(channels=4, hidden=8, convs=1)
    cascade, _ = _cascade([right] * 3, [FlatMask([0.0, 0.0])] * 3, paper)
    losses = cascade(MAPS, [torch.zeros(0, 4)], [instances((10, 10, 30, 30))])
    for stage, (weight, std) in enumerate(zip((1, 0.5, 0.25), (0.1, 0.05, 0.033), strict=True)):
        # The instance is the only sample of every stage, dropped and added anew. It moves by
        # std × its width, to an IoU of (1 - std) / (1 + std).
        wanted = weight * 10 * 2 * std / (1 + std)
        assert losses[f"box_{stage + 1}"].item() == pytest.approx(wanted, rel=1e-4)
    proposal = torch.tensor([[10.0, 10, 30, 30]])
    (found,) = cascade.detect(MAPS, [proposal], [(64, 64)], DetectionsConfig(score=0.5))
    moved = (0.1 + 0.05 + 0.033) * 20
    torch.testing.assert_close(found.boxes, torch.tensor([[10 + moved, 10, 30 + moved, 30]]))


def test_the_class_loss_knows_the_true_classes_and_the_background_last() -> None:
    # One negative (background), two or three positive of class 1, one of class 0.
    head = Answer([0.0, 1.0, 2.0], [NONE, NONE])
    cascade, _ = _cascade([head, head], [FlatMask([0.0, 0.0])] * 2)
    losses = cascade(MAPS, [PROPOSALS], [TRUTH])
    total = math.log(1 + math.e + math.e**2)
    first, second = total - (0 + 1 + 1 + 1 + 2) / 5, total - (0 + 1 + 1 + 2 + 2) / 5
    assert losses["class_1"].item() == pytest.approx(first, rel=1e-5)
    assert losses["class_2"].item() == pytest.approx(0.5 * second, rel=1e-5)


def test_the_mask_loss_reads_the_mask_of_the_true_class() -> None:
    head = Answer([0.0, 0.0, 0.0], [NONE, NONE])
    cascade, _ = _cascade([head, head], [FlatMask([-20.0, 20.0])] * 2)
    losses = cascade(MAPS, [TRUTH.boxes], [TRUTH])
    # Masks fill their boxes, so that 20 is right for class 1 and -20 wrong for class 0, half of
    # each; but two corners of the smaller one are less than half covered by interpolation.
    assert losses["mask_1"].item() == pytest.approx(10 * (1 - 2 / 28**2), rel=1e-5)


def test_losses_of_two_images_are_means_over_the_samples_of_both() -> None:
    head = Answer([0.0, 1.0, 2.0], [NONE, NONE])
    truth = [TRUTH, instances((10, 10, 30, 30))]
    proposals = [PROPOSALS, torch.tensor([[10.0, 10, 30, 28]])]
    alone = [
        _cascade([head, head], [FlatMask([-1.0, 3.0])] * 2)[0](MAPS, [boxes], [instances])
        for boxes, instances in zip(proposals, truth, strict=True)
    ]
    cascade, _ = _cascade([head, head], [FlatMask([-1.0, 3.0])] * 2)
    both = cascade(MAPS, proposals, truth)
    # Samples of the images: 5 and 2; of which positive, in stage 1: 4 and 2, in stage 2: 3 and 2.
    counts = {"class_1": (5, 2), "box_1": (5, 2), "mask_1": (4, 2), "mask_2": (3, 2)}
    for name, (first, second) in counts.items():
        wanted = (first * alone[0][name] + second * alone[1][name]) / (first + second)
        torch.testing.assert_close(both[name], wanted)


def test_detections_average_logits_and_masks_over_the_stages() -> None:
    first = Answer([4.0, 0.0, 0.0], [(1.0, 0, 0, 0), (0, 1.0, 0, 0)])
    second = Answer([0.0, 2.0, 0.0], [(2.0, 0, 0, 0), (0, 2.0, 0, 0)])
    cascade, pool = _cascade([first, second], [FlatMask([0.0, 3.0]), FlatMask([2.0, -1.0])])
    proposal = torch.tensor([[10.0, 10, 30, 30]])
    config = DetectionsConfig(score=0.2)
    (found,) = cascade.detect(MAPS, [proposal], [(64, 64)], config)
    # Mean logits 2, 1, 0.
    total = math.e**2 + math.e + 1
    wanted = [math.e**2 / total, math.e / total]
    assert found.scores.tolist() == pytest.approx(wanted, rel=1e-5)
    assert found.labels.tolist() == [0, 1]
    # Stage 1 moves by its own best class, 0: right by 0.1 × 20; stage 2 by 2 × 0.05 × 20.
    torch.testing.assert_close(found.boxes, torch.tensor([[14.0, 10, 34, 30], [12.0, 12, 32, 32]]))
    masks = [(0.5 + 1 / (1 + math.exp(-2))) / 2, (1 / (1 + math.exp(-3)) + 1 / (1 + math.e)) / 2]
    assert found.masks.amin((1, 2)).tolist() == pytest.approx(masks)
    assert found.masks.amax((1, 2)).tolist() == pytest.approx(masks)
    assert pool.boxes[-1][1] == found.boxes.tolist()  # masks are those of the final boxes


def test_detections_of_each_image_are_its_own() -> None:
    head = Answer([3.0, 0.0, 0.0], [NONE, NONE])
    cascade, _ = _cascade([head, head], [FlatMask([0.0, 0.0])] * 2)
    proposals = [
        torch.tensor([[0.0, 0, 10, 10], [20, 20, 30, 30]]),
        torch.tensor([[0.0, 0, 40, 40]]),
    ]
    maps = [torch.zeros(2, 4, 16, 16)]
    first, second = cascade.detect(
        maps, proposals, [(64, 64), (24, 32)], DetectionsConfig(score=0.5)
    )
    assert first.boxes.tolist() == [[0, 0, 10, 10], [20, 20, 30, 30]]
    assert second.boxes.tolist() == [[0, 0, 32, 24]]


def test_detections_are_those_of_every_proposal_taken_alone() -> None:
    torch.manual_seed(0)
    config = CascadeConfig(channels=8, hidden=16, convs=1)
    cascade = Cascade(4, 3, (4.0, 8.0), config).eval()
    for head in cascade.box_heads:
        assert isinstance(head, BoxHead)
        nn.init.normal_(head.boxes.weight, std=0.5)
        nn.init.normal_(head.classes.weight, std=0.5)
    maps = [torch.randn(2, 4, 64, 64), torch.randn(2, 4, 32, 32)]
    corners = torch.rand(2, 6, 2, 2) * 250
    proposals = list(torch.cat([corners.amin(2), corners.amax(2)], dim=2))
    sizes, keep_all = [(256, 256), (200, 240)], DetectionsConfig(score=0.01, nms_iou=1.0)
    together = cascade.detect(maps, proposals, sizes, keep_all)
    for image, found in enumerate(together):
        own = [level[image : image + 1] for level in maps]
        alone = [
            cascade.detect(own, [box[None]], sizes[image : image + 1], keep_all)[0]
            for box in proposals[image]
        ]
        order = torch.cat([one.scores for one in alone]).argsort(descending=True)
        for name in ("scores", "labels", "boxes", "masks"):
            wanted = torch.cat([getattr(one, name) for one in alone])[order]
            torch.testing.assert_close(getattr(found, name), wanted, rtol=1e-4, atol=1e-3)


def test_where_no_box_scores_nothing_is_detected() -> None:
    head = Answer([0.0, 0.0, 9.0], [NONE, NONE])
    cascade, _ = _cascade([head, head], [FlatMask([0.0, 0.0])] * 2)
    (found,) = cascade.detect(MAPS, [PROPOSALS], [(64, 64)], DetectionsConfig())
    assert found.boxes.shape == (0, 4)
    assert found.masks.shape == (0, 28, 28)


def test_boxes_above_the_score_count_best_first_without_overlaps_of_a_class() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 6], [0, 0, 10, 4], [30, 30, 40, 40]])
    scores = torch.tensor([[0.5, 0.3], [0.6, 0.0], [0.4, 0.0], [0.05, 0.9]])
    found, likely, labels = choose(scores, boxes[:, None].expand(-1, 2, -1), DetectionsConfig())
    # Of class 0 the second box drops the first (IoU 0.6) and the third (0.67); 0.05 is not above.
    assert labels.tolist() == [1, 0, 1]
    assert likely.tolist() == pytest.approx([0.9, 0.6, 0.3])
    assert found.tolist() == [[30, 30, 40, 40], [0, 0, 10, 6], [0, 0, 10, 10]]


def test_an_overlap_of_exactly_half_is_kept() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 5]])[:, None]
    assert len(choose(torch.tensor([[0.9], [0.8]]), boxes, DetectionsConfig())[0]) == 2


def test_at_most_a_hundred_boxes_count_the_best_ones() -> None:
    corners = torch.arange(150.0)[:, None] * 20
    boxes = torch.cat([corners, corners, corners + 10, corners + 10], dim=1)[:, None]
    scores = torch.linspace(0.1, 0.9, 150)[:, None]
    _, likely, _ = choose(scores, boxes, DetectionsConfig())
    assert torch.equal(likely, scores[50:, 0].flip(0))
