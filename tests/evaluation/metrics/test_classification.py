import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import one_hot

from attmask.evaluation.metrics.classification import (
    Answers,
    Classification,
    multi_label,
    single_label,
)

CLASSES = ("ant", "bee", "cow")
#            right  right  ant->bee  cow->ant  cow->ant
LABELS = torch.tensor([0, 1, 0, 2, 2])
GUESSES = torch.tensor([0, 1, 1, 0, 0])


def answers(labels: torch.Tensor, guesses: torch.Tensor, classes: int = 3) -> Answers:
    return Answers.of(labels, one_hot(guesses, classes).float())


def values(found: Classification) -> dict[str, float]:
    return {metric.key: metric.value for metric in found.metrics}


def test_a_small_example_by_hand() -> None:
    found = single_label(answers(LABELS, GUESSES), CLASSES)
    assert values(found) == pytest.approx(
        {"classify.top1": 40.0, "classify.per_class": 100 * (1 / 2 + 1 + 0) / 3}
    )
    assert found.confusion is not None
    assert found.confusion.tolist() == [[1, 1, 0], [0, 1, 0], [2, 0, 0]]
    ant, bee, cow = found.rows
    assert (ant.images, ant.recall) == (2, 50)
    assert ant.precision == pytest.approx(100 / 3)
    assert ant.f1 == pytest.approx(100 * 2 * 1 / (2 + 1 + 2))
    assert (ant.confused_with, ant.confused) == ("bee", 1)
    assert (bee.confused_with, bee.confused) == ("", 0)
    assert (cow.recall, cow.precision, cow.f1) == (0, None, 0), "cow was never predicted"
    assert (cow.confused_with, cow.confused) == ("ant", 2)
    assert found.notes == ()


@given(seed=st.integers(0, 10_000), classes=st.integers(2, 9), images=st.integers(1, 40))
def test_top1_top5_and_the_matrix_equal_a_plain_loop(seed: int, classes: int, images: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (images,), generator=draw)
    logits = torch.randn(images, classes, generator=draw)
    found = single_label(Answers.of(labels, logits), [str(c) for c in range(classes)])
    first = five = 0
    matrix = np.zeros((classes, classes), dtype=np.int64)
    for label, row in zip(labels.tolist(), logits.tolist(), strict=True):
        ranked = sorted(range(classes), key=lambda c: -row[c])
        first += ranked[0] == label
        five += label in ranked[:5]
        matrix[label, ranked[0]] += 1
    assert found.confusion is not None
    assert found.confusion.tolist() == matrix.tolist()
    assert values(found)["classify.top1"] == pytest.approx(100 * first / images)
    assert ("classify.top5" in values(found)) == (classes > 5)
    if classes > 5:
        assert values(found)["classify.top5"] == pytest.approx(100 * five / images)


def test_answers_of_several_batches_are_those_of_all() -> None:
    logits = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    parts = [Answers.of(labels[rows], logits[rows]) for rows in (slice(0, 3), slice(3, 7))]
    joined, whole = Answers.joined(parts), Answers.of(labels, logits)
    assert torch.equal(joined.predicted, whole.predicted)
    assert torch.equal(joined.ranks, whole.ranks)


def test_a_class_without_an_image_is_left_out_of_the_mean_and_that_is_said() -> None:
    found = single_label(answers(torch.tensor([0, 0]), torch.tensor([0, 1])), CLASSES)
    assert values(found)["classify.per_class"] == 50
    assert [row.recall for row in found.rows] == [50, None, None]
    assert found.rows[1].precision == 0
    assert found.notes == (
        "2 classes without an image are left out of the mean accuracy per class",
    )


def test_several_classes_per_image_by_hand() -> None:
    targets = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]]).bool()
    logits = torch.tensor([[3.0, 1.0, -1.0], [2.0, 2.0, -1.0], [-1.0, -2.0, 1.0], [2.5, -3.0, -1]])
    found = multi_label(targets, logits, CLASSES)
    # ant: ranked 3.0 (right), 2.5 (wrong), 2.0 (right); bee: 2.0 (right), 1.0 (wrong), -2.0 (right)
    mean_ap = (1 / 2 * (1 + 2 / 3) + 1 / 2 * (1 + 2 / 3)) / 2
    f1_ant, f1_bee = 2 * 2 / (2 * 2 + 1 + 0), 2 * 1 / (2 * 1 + 1 + 1)
    micro = 2 * 3 / (2 * 3 + 3 + 1)
    assert values(found) == pytest.approx(
        {
            "classify.map": 100 * mean_ap,
            "classify.f1": 100 * (f1_ant + f1_bee) / 2,
            "classify.f1_micro": 100 * micro,
        }
    )
    assert found.confusion is None
    assert [row.average_precision for row in found.rows] == [
        pytest.approx(100 * 5 / 6),
        pytest.approx(100 * 5 / 6),
        None,
    ]
    assert [row.images for row in found.rows] == [2, 2, 0]
    assert found.notes == (
        "1 class without an image is left out of mean average precision and mean F1",
    )


def test_the_threshold_decides_which_classes_are_predicted() -> None:
    targets = torch.tensor([[True], [True], [False]])
    logits = torch.tensor([[math.log(9)], [0.0], [math.log(0.25)]])  # 0.9, 0.5, 0.2
    recalls = [
        multi_label(targets, logits, ("a",), threshold).rows[0].recall
        for threshold in (0.1, 0.5, 0.6, 0.95)
    ]
    assert recalls == [100, 100, 50, 0]


def test_nothing_to_measure_is_a_fault_of_ours() -> None:
    with pytest.raises(ValueError, match="no images"):
        single_label(answers(LABELS[:0], GUESSES[:0]), CLASSES)
    with pytest.raises(ValueError, match="no image has a class"):
        multi_label(torch.zeros(2, 3).bool(), torch.zeros(2, 3), CLASSES)
