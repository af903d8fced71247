from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.forward import Features
from attmask.evaluation.metrics import accuracy as module
from attmask.evaluation.metrics.accuracy import Accuracy, accuracies, accuracy
from tests.evaluation.test_classifier import classifier, features


def plain_accuracy(trained: LinearClassifier, tested: Features) -> Accuracy:
    assert tested.labels is not None
    first = five = 0
    for vector, label in zip(tested.vectors, tested.labels.tolist(), strict=True):
        logits = (trained.weight @ vector + trained.bias).tolist()
        ranked = sorted(range(len(logits)), key=lambda c: -logits[c])
        first += label == ranked[0]
        five += label in ranked[:5]
    return Accuracy(100 * first / len(tested.labels), 100 * five / len(tested.labels))


@given(seed=st.integers(0, 10_000), classes=st.integers(1, 9), images=st.integers(1, 30))
def test_accuracy_equals_a_plain_loop(seed: int, classes: int, images: int) -> None:
    trained, tested = classifier(classes, seed=seed), features(images, classes, seed=seed + 1)
    assert accuracy(trained, tested) == plain_accuracy(trained, tested)


def test_chunks_do_not_change_the_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    trained, tested = classifier(7), features(41, 7)
    whole = accuracy(trained, tested)
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 7 * 4)
    assert accuracy(trained, tested) == whole


def test_rows_choose_what_is_tested() -> None:
    trained, tested = classifier(7), features(41, 7)
    assert tested.labels is not None
    rows = torch.tensor([5, 3, 40, 3])
    chosen = Features(tested.vectors[rows], tested.labels[rows])
    found = accuracies([(trained.weight, trained.bias)], tested, rows)
    assert found == [accuracy(trained, chosen)]


def test_the_lower_class_wins_a_tie_of_logits() -> None:
    silent = replace(classifier(7), weight=torch.zeros(7, 4), bias=torch.zeros(7))
    for label, expected in ((0, (100, 100)), (4, (0, 100)), (5, (0, 0))):
        found = accuracy(silent, Features(torch.ones(3, 4), torch.full((3,), label)))
        assert (found.top1, found.top5) == expected


@pytest.mark.parametrize(
    ("tested", "says"),
    [
        (Features(torch.ones(2, 4), None), "have no labels"),
        (Features(torch.ones(0, 4), torch.ones(0).long()), "no test images"),
        (features(30, classes=4), "labels 0 to 3, but the classifier has 3 classes"),
        (features(3, width=5), "features have width 5, but the classifier was trained on width 4"),
    ],
)
def test_what_cannot_be_tested_is_refused(tested: Features, says: str) -> None:
    with pytest.raises(UserError, match=says):
        accuracy(classifier(), tested)


def test_weights_that_are_not_finite_give_no_answer() -> None:
    broken = replace(classifier(), bias=torch.full((3,), torch.nan))
    with pytest.raises(ValueError, match="not finite"):
        accuracy(broken, features(3))
