"""Classes of a fine-tuning: which there are, what is refused, and how they are weighted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.finetuning.config import LabelsConfig
from attmask.finetuning.labels import (
    class_weights,
    find_classes,
    guess_loss,
    number_alike,
    rarest,
)
from tests.finetuning.sources import Numbers

ONE, SEVERAL = LabelsConfig(), LabelsConfig(multi_label=True)


def source(labels: list[int] | None, classes: tuple[str, ...] = ("a", "b", "c")) -> Source:
    count = 4 if labels is None else len(labels)
    known = None if labels is None else np.array(labels)
    return Source(
        Path("DATA"), Numbers(count), range(count), known, () if labels is None else classes
    )


def complaint(train: Source, config: LabelsConfig = ONE, **held_out: Source) -> str:
    with pytest.raises(UserError) as raised:
        find_classes(train, held_out, config)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_classes_without_a_training_image_are_left_out() -> None:
    found = find_classes(source([2, 0, 2, 0]), {"val": source([0, 2])}, ONE)
    assert found.names == ("a", "c")
    assert found.of(np.array([2, 0])).tolist() == [1, 0]


def test_images_without_labels_are_refused() -> None:
    assert "the images of DATA have no labels; give one sub-folder" in complaint(source(None))
    assert "the val images of DATA have no labels" in complaint(source([0, 1]), val=source(None))


def test_one_class_is_refused() -> None:
    said = complaint(source([1, 1, 1]))
    assert said.startswith("all 3 images of DATA have the class 'b'; fine-tuning wants at least")


def test_a_label_that_no_training_image_has_is_refused_by_name() -> None:
    said = complaint(source([0, 1]), test=source([0, 2], ("a", "b", "zebra")))
    assert "the test images of DATA have 1 label that no training image has: zebra" in said


def test_labels_joined_by_a_bar_are_several_classes() -> None:
    texts = ("cat|dog", "dog", "|", "cat")
    found = find_classes(source([0, 1, 2], texts), {"val": source([3], texts)}, SEVERAL)
    assert found.names == ("cat", "dog")
    assert found.of(np.array([0, 1, 2, 3])).tolist() == [[1, 1], [0, 1], [0, 0], [1, 0]]


def test_an_unknown_one_of_several_labels_is_refused() -> None:
    texts = ("cat|dog", "dog", "cat|emu")
    said = complaint(source([0, 1], texts), SEVERAL, val=source([2], texts))
    assert "no training image has: cat|emu" in said


def test_images_that_all_have_no_label_are_refused() -> None:
    assert "no image of DATA has a label" in complaint(source([0, 0], ("|",)), SEVERAL)


def test_labels_that_only_held_out_splits_have_are_numbered_alike() -> None:
    """A data set numbers those of val and of test by themselves: 2 is both c|a and b|c here."""
    train = source([0, 1, 2], ("a", "b", "c"))
    val, test = source([3], ("a", "b", "c", "a|c")), source([3, 0], ("a", "b", "c", "b|c"))
    splits = number_alike({"train": train, "val": val, "test": test})
    found = find_classes(train, {"val": splits["val"], "test": splits["test"]}, SEVERAL)
    of = {name: found.of(np.asarray(splits[name].labels)).tolist() for name in ("val", "test")}
    assert of == {"val": [[1, 0, 1]], "test": [[0, 1, 1], [1, 0, 0]]}
    said = complaint(splits["train"], val=splits["val"], test=splits["test"])
    assert "the val images of DATA have 1 label that no training image has: a|c" in said


def test_the_loss_of_a_guess_is_that_of_equal_logits() -> None:
    labels, smoothing = [0, 0, 0, 1, 2, 2], 0.1
    train = source(labels)
    classes = find_classes(train, {}, ONE)
    weights = class_weights(classes, train)
    wanted = torch.eye(3)[labels] * (1 - smoothing) + smoothing / 3
    by_hand = functional.cross_entropy(torch.zeros(6, 3), wanted, weight=torch.tensor(weights))
    assert guess_loss(classes, train, weights, smoothing) == pytest.approx(by_hand.item())
    assert guess_loss(classes, train, None, smoothing) == pytest.approx(np.log(3))
    train = source([0, 1, 1, 2], ("cat|dog", "dog", "|"))
    classes = find_classes(train, {}, SEVERAL)
    weights = class_weights(classes, train)
    assert train.labels is not None
    wanted = torch.tensor(classes.of(train.labels)) * (1 - smoothing) + smoothing / 2
    by_hand = functional.binary_cross_entropy_with_logits(
        torch.zeros(4, 2), wanted, pos_weight=torch.tensor(weights)
    )
    assert guess_loss(classes, train, weights, smoothing) == pytest.approx(by_hand.item())


def test_the_rarest_class_of_an_image_is_what_a_holdout_goes_by() -> None:
    train = source([0, 1, 1, 2], ("cat|dog", "dog", "|"))
    assert rarest(find_classes(train, {}, SEVERAL), train).tolist() == [0, 1, 1, 2]


def test_weights_of_classes_are_scikit_learns() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    labels = [0, 0, 0, 1, 2, 2]
    train = source(labels)
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=np.array(labels))
    np.testing.assert_allclose(class_weights(find_classes(train, {}, ONE), train), theirs)


def test_balanced_classes_have_equal_weights() -> None:
    train = source([0, 1, 2, 0, 1, 2])
    assert class_weights(find_classes(train, {}, ONE), train).tolist() == [1, 1, 1]


def test_a_rare_one_of_several_labels_weighs_as_its_odds() -> None:
    train = source([0, 1, 1, 1], ("cat|dog", "dog"))
    assert class_weights(find_classes(train, {}, SEVERAL), train)[0] == 3
