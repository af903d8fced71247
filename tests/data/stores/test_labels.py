import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.stores.index import Part
from attmask.data.stores.labels import LabelsBuilder, in_order, label_texts, match_classes
from attmask.data.stores.names import pack


@given(st.lists(st.sampled_from(["cat", "dog", "10", "9", "-1", ""])))
def test_every_image_keeps_what_its_class_is_called(texts: list[str]) -> None:
    builder = LabelsBuilder()
    for text in texts:
        builder.add(text)
    labels, classes = builder.build()
    assert [classes[label] for label in labels] == texts
    assert classes == in_order(sorted(set(texts)))


def test_integers_are_ordered_by_value_and_names_by_letter() -> None:
    assert in_order(["10", "9", "-1"]) == ("-1", "9", "10")
    assert in_order(["10", "9", "b", "a"]) == ("10", "9", "a", "b")


def labelled(labels: list[int], *classes: str) -> Part:
    return Part("", pack(map(str, labels)), np.array(labels), classes)


def test_classes_are_numbered_as_train_does_and_those_it_lacks_come_after_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    splits = {
        "train": labelled([0, 1, 2], "a", "b", "d"),
        "val": labelled([0, 1, 1], "b", "d"),
        "test": labelled([0, 1, 2, 3], "0", "b", "c", "d"),
    }
    matched = match_classes(splits, "here")
    assert matched["train"] is splits["train"]
    assert [(p.classes, p.labels.tolist()) for p in matched.values() if p.labels is not None] == [
        (("a", "b", "d"), [0, 1, 2]),
        (("a", "b", "d"), [1, 2, 2]),
        (("a", "b", "d", "0", "c"), [3, 1, 4, 2]),
    ]
    assert caplog.messages == ["here: test has 2 classes that train does not have: 0, c"]


def test_splits_without_labels_are_left_as_they_are() -> None:
    splits = {"train": labelled([0], "a"), "val": Part("", pack(["1"])), "test": labelled([0], "z")}
    assert match_classes(splits, "here")["val"] is splits["val"]
    bare = {"train": Part("", pack(["1"])), "test": labelled([0], "z")}
    assert match_classes(bare, "here")["test"] is bare["test"]


def test_labels_of_a_table_are_numbers_of_names_or_any_values_or_none_where_one_is_missing() -> (
    None
):
    numbers, classes = label_texts([1, 0, 1], ["cat", "dog"])
    assert numbers is not None
    assert (numbers.tolist(), classes) == ([1, 0, 1], ("cat", "dog"))
    numbers, classes = label_texts([7, 5], None)
    assert numbers is not None
    assert (numbers.tolist(), classes) == ([1, 0], ("5", "7"))
    assert label_texts([1, None], None) == (None, ())
    assert label_texts([0, -1], ["cat", "dog"]) == (None, ())
