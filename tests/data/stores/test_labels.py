import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.stores.labels import LabelsBuilder, in_order, label_texts, renumber
from attmask.errors import UserError


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


def test_classes_are_renumbered_by_name_and_unknown_ones_are_named() -> None:
    labels = np.array([0, 1, 1])
    assert renumber(labels, ("b", "c"), ("a", "b", "c"), "val", "train").tolist() == [1, 2, 2]
    with pytest.raises(UserError, match="val has 1 classes that train does not have: d"):
        renumber(labels, ("b", "d"), ("a", "b", "c"), "val", "train")


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
