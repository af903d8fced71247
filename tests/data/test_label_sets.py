import pytest

from attmask.data.label_sets import classes_in, joined, membership


def test_the_classes_are_the_names_between_the_separators() -> None:
    assert classes_in(["dog|cat", "cat", " cat | bird", "|"]) == ("bird", "cat", "dog")
    assert classes_in(["10|9", "9"]) == ("9", "10"), "numbers in their order, as everywhere"
    assert classes_in([]) == ()


def test_each_label_says_which_classes_it_joins() -> None:
    table = membership(["dog|cat", "cat", "|", ""], ("bird", "cat", "dog"))
    assert table.tolist() == [
        [False, True, True],
        [False, True, False],
        [False, False, False],
        [False, False, False],
    ]
    with pytest.raises(KeyError, match="fox"):
        membership(["cat|fox"], ("cat",))


def test_what_is_joined_is_taken_apart_again() -> None:
    classes = ("bird", "cat", "dog")
    label = joined(["dog", "bird"])
    assert membership([label], classes).tolist() == [[True, False, True]]
