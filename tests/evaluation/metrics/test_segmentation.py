"""mIoU, aAcc and mAcc over a whole set, against scikit-learn and torchmetrics."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, confusion_matrix, jaccard_score, recall_score
from torch import Tensor
from torchmetrics.classification import MulticlassJaccardIndex

from attmask.errors import UserError
from attmask.evaluation.metrics.segmentation import Segmentation, Segmented
from attmask.metric import values_by_key
from tests.groups import in_group

NAMES = ("sky", "road", "tree", "car")
Pairs = list[tuple[Tensor, Tensor]]


def drawn(images: int, classes: int = 4) -> Pairs:
    """Predictions that are often right, and truths of which some pixels have no class."""
    generator = torch.Generator().manual_seed(0)
    pairs = []
    for _ in range(images):
        truth, other = (torch.randint(0, classes, (7, 9), generator=generator) for _ in range(2))
        is_right = torch.rand(7, 9, generator=generator) < 0.5
        without = torch.rand(7, 9, generator=generator) < 0.2
        pairs.append((torch.where(is_right, truth, other), truth.masked_fill(without, -1)))
    return pairs


def counted(pairs: Pairs) -> Segmented:
    segmented = Segmented(len(NAMES))
    for number, (predicted, truth) in enumerate(pairs):
        segmented.update(predicted, truth, number)
    return segmented


def measured(pairs: Pairs) -> Segmentation:
    return counted(pairs).result(NAMES)


def labelled(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """All predictions and truths of labelled pixels."""
    predicted, truth = (torch.cat([pair[side].flatten() for pair in pairs]) for side in (0, 1))
    return predicted[truth >= 0].numpy(), truth[truth >= 0].numpy()


def test_all_measures_are_those_of_scikit_learn() -> None:
    pairs = drawn(5)
    found = measured(pairs)
    predicted, truth = labelled(pairs)
    np.testing.assert_array_equal(found.confusion, confusion_matrix(truth, predicted))
    assert values_by_key(found.metrics) == pytest.approx(
        {
            "segment.miou": 100 * jaccard_score(truth, predicted, average="macro"),
            "segment.aacc": 100 * accuracy_score(truth, predicted),
            "segment.macc": 100 * recall_score(truth, predicted, average="macro"),
        }
    )
    ious = 100 * jaccard_score(truth, predicted, average=None)
    assert [row.iou for row in found.rows] == pytest.approx(list(ious))
    assert sum(row.share for row in found.rows) == pytest.approx(100)
    assert found.notes == ()


def test_the_mean_iou_is_that_of_torchmetrics() -> None:
    pairs = drawn(4, classes=3)  # the fourth class occurs nowhere, and both leave it out
    index = MulticlassJaccardIndex(4, ignore_index=-1)
    for predicted, truth in pairs:
        index.update(predicted[None], truth[None])
    found = values_by_key(measured(pairs).metrics)["segment.miou"]
    assert found == pytest.approx(100 * float(index.compute()), rel=1e-6)


def test_the_mean_is_over_the_whole_set_and_not_over_images() -> None:
    right = torch.zeros(1, 9, dtype=torch.int64)
    small = torch.zeros(1, 1, dtype=torch.int64)
    found = measured([(right, right), (small + 1, small)])
    assert [row.iou for row in found.rows] == [90.0, 0.0, None, None]
    assert values_by_key(found.metrics) == pytest.approx(
        {"segment.miou": 45.0, "segment.aacc": 90.0, "segment.macc": 90.0}
    )


def test_a_class_that_is_only_predicted_counts_in_the_mean_iou_alone() -> None:
    found = measured([(torch.tensor([[0, 1]]), torch.tensor([[0, 0]]))])
    assert found.rows[1].iou == 0
    assert found.rows[1].accuracy is None
    assert found.notes == (
        "2 classes are left out of the mean IoU, which no pixel is or was predicted to be",
        "3 classes without a pixel are left out of the mean accuracy",
    )


def test_pixels_without_a_class_change_nothing() -> None:
    pairs = drawn(2)
    other = [(torch.where(truth < 0, 3 - said, said), truth) for said, truth in pairs]
    assert any(not torch.equal(a[0], b[0]) for a, b in zip(pairs, other, strict=True))
    np.testing.assert_array_equal(measured(pairs).confusion, measured(other).confusion)


def test_labels_of_16_bits_do_not_overflow() -> None:
    truth = torch.full((2, 3), 299, dtype=torch.int16)
    segmented = Segmented(300)
    segmented.update(truth, truth, 0)
    assert segmented.confusion[299, 299] == 6


def test_rows_say_what_a_class_was_taken_for() -> None:
    found = measured([(torch.tensor([[0, 1, 1, 2]]), torch.tensor([[0, 0, 0, 0]]))])
    sky = found.rows[0]
    assert (sky.share, sky.accuracy, sky.confused_with, sky.confused) == (100, 25, "road", 50)


def test_images_are_sorted_by_their_own_iou() -> None:
    truth = torch.tensor([[0, 0, 1, 1]])
    segmented = Segmented(4)
    segmented.update(truth, truth, 7)
    segmented.update(torch.tensor([[0, 0, 0, 0]]), truth, 4)
    segmented.update(truth, torch.full((1, 4), -1), 5)  # has nothing to measure
    segmented.update(1 - truth, truth, 9)
    assert segmented.result(NAMES).worst_first == ((9, 0.0), (4, 25.0), (7, 100.0))


def test_merged_counts_are_those_of_all_images() -> None:
    pairs = drawn(6)
    whole = counted(pairs)
    first, second = Segmented(4), Segmented(4)
    for number, pair in enumerate(pairs):
        (first if number < 2 else second).update(*pair, number)
    first.merge(second)
    np.testing.assert_array_equal(first.confusion, whole.confusion)
    assert first.result(NAMES).worst_first == whole.result(NAMES).worst_first


def test_processes_measure_what_one_does(tmp_path: Path) -> None:
    pairs = drawn(5)

    def work(rank: int) -> tuple[dict[str, float], object]:
        own = Segmented(4)
        for number in range(rank, len(pairs), 2):
            own.update(*pairs[number], number)
        found = own.of_all_processes().result(NAMES)
        return values_by_key(found.metrics), found.worst_first

    whole = measured(pairs)
    expected = values_by_key(whole.metrics), whole.worst_first
    assert in_group(2, tmp_path, work) == [expected, expected]


def test_nothing_to_measure_is_an_error() -> None:
    nothing = counted([(torch.zeros(2, 2, dtype=torch.int64), torch.full((2, 2), -1))])
    with pytest.raises(UserError, match="no pixel of the images to measure on has a class"):
        nothing.result(NAMES)


def test_without_torchmetrics_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.classification", None)
    with pytest.raises(UserError, match=r"pip install 'attmask\[dense\]'"):
        Segmented(2)
