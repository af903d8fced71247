import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.source import Source
from attmask.errors import UserError
from tests.sources import labels, names, of_files


def labelled(counts: list[int]) -> Source:
    pairs = [(label, i) for label, count in enumerate(counts) for i in range(count)]
    files = [f"{label}/{i:03}.png" for label, i in pairs]
    classes = tuple(map(str, range(len(counts))))
    return of_files(Path("root"), files, [label for label, _ in pairs], classes)


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=5), count=st.integers(1, 10))
def test_first_per_class_keeps_the_first_files_of_each_class(counts: list[int], count: int) -> None:
    source = labelled(counts).first_per_class(count)
    wanted = [f"{label}/{i:03}.png" for label, n in enumerate(counts) for i in range(min(n, count))]
    assert names(source) == wanted
    assert labels(source) == [int(name[0]) for name in wanted]
    assert len(source.classes) == len(counts)


def test_first_per_class_needs_labels_and_a_positive_count() -> None:
    with pytest.raises(UserError, match="no labels"):
        of_files(Path("root"), ["1.jpg"]).first_per_class(5)
    with pytest.raises(UserError, match="at least 1"):
        labelled([2]).first_per_class(0)


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=5), fraction=st.floats(0.01, 0.99))
def test_a_holdout_parts_every_class_and_loses_nothing(counts: list[int], fraction: float) -> None:
    source = labelled(counts)
    bank, queries = source.split_holdout(fraction)
    assert sorted([*names(bank), *names(queries)]) == names(source)
    assert bank.labels is not None
    assert queries.labels is not None
    for label, count in enumerate(counts):
        held = (queries.labels == label).sum()
        assert (bank.labels == label).sum() == count - held
        assert held < count
        assert abs(held - count * fraction) <= 1
        assert held >= 1 or count == 1


def test_a_holdout_is_evenly_spaced_in_file_order() -> None:
    unlabelled = of_files(Path("root"), [f"{i:02}.png" for i in range(20)])
    _, queries = unlabelled.split_holdout(0.2)
    assert names(queries) == ["02.png", "07.png", "12.png", "17.png"]
    assert queries.labels is None


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_an_impossible_holdout_is_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        labelled([3]).split_holdout(fraction)


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    percent=st.floats(0, 100, exclude_min=True),
)
def test_first_percent_keeps_the_first_files_of_each_class_and_at_least_one(
    counts: list[int], percent: float
) -> None:
    source = labelled(counts).first_percent(percent)
    assert source.labels is not None
    for label, count in enumerate(counts):
        kept = [name for name in names(source) if name.startswith(f"{label}/")]
        assert kept == [f"{label}/{i:03}.png" for i in range(len(kept))]
        assert len(kept) >= 1
        assert len(kept) == 1 or abs(len(kept) - count * percent / 100) <= 0.5 + 1e-9


def test_first_percent_of_images_without_labels_is_of_all() -> None:
    unlabelled = of_files(Path("root"), [f"{i:02}.png" for i in range(20)])
    assert names(unlabelled.first_percent(15.0)) == ["00.png", "01.png", "02.png"]
    assert names(unlabelled.first_percent(100.0)) == names(unlabelled)


@pytest.mark.parametrize("percent", [0.0, -1.0, 100.5])
def test_an_impossible_percentage_is_refused(percent: float) -> None:
    with pytest.raises(UserError, match="above 0 and at most 100"):
        labelled([3]).first_percent(percent)


def test_a_subset_keeps_the_order_given_and_the_labels_that_belong_to_it() -> None:
    source = labelled([2, 2]).subset([3, 0]).subset([1, 0, 1])
    assert names(source) == ["0/000.png", "1/001.png", "0/000.png"]
    assert labels(source) == [0, 1, 0]


def test_a_pickled_source_is_the_same() -> None:
    source = labelled([2, 1])
    copy = pickle.loads(pickle.dumps(source))
    assert names(copy) == names(source)
    assert labels(copy) == labels(source)
    assert copy.place(2) == "root/1/000.png"
