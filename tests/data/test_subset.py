import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data import contents, subset
from attmask.data.contents import fingerprint
from attmask.data.source import Source
from attmask.data.stores.columns import pieces
from attmask.data.stores.mapped import Mapped
from attmask.data.subset import (
    evenly_spaced,
    first_per_class,
    first_percent,
    position_in_class,
    split_holdout,
    spread_evenly,
    thinned,
)
from attmask.errors import UserError
from tests.data.stores.test_index import keep, settle
from tests.sources import labels, names, of_files, touch


def labelled(counts: list[int]) -> Source:
    pairs = [(label, i) for label, count in enumerate(counts) for i in range(count)]
    files = [f"{label}/{i:03}.png" for label, i in pairs]
    classes = tuple(map(str, range(len(counts))))
    return of_files(Path("root"), files, [label for label, _ in pairs], classes)


def test_labels_that_are_read_in_chunks_give_the_same_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = np.random.default_rng(0)
    classes = chance.choice(9, p=chance.dirichlet(np.ones(9)), size=500)
    source = of_files(Path(), [f"{i}.png" for i in range(500)], classes.tolist(), "abcdefghi")

    def chosen() -> list[object]:
        subsets = [first_percent(source, 30.0), first_per_class(source, 20)]
        return [
            *(spread_evenly(classes, 500, limit) for limit in (1, 9, 100, 499)),
            *((np.asarray(one.rows).tolist(), labels(one)) for one in subsets),
        ]

    whole = chosen()
    monkeypatch.setattr(subset, "pieces", partial(pieces, size=7))
    assert chosen() == whole


def test_a_large_subset_is_kept_in_a_file_and_has_a_fingerprint_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(touch(tmp_path / "data", *(f"{i % 3}/{i}.jpg" for i in range(60))))
    source = keep(tmp_path / "data", tmp_path / "run").train
    small = first_percent(source, 50.0)
    for module in (subset, contents):
        monkeypatch.setattr(module, "LARGE", 20)
    large = first_percent(source, 50.0)
    assert names(large) == names(small)
    assert labels(large) == labels(small)
    assert isinstance(large.rows, Mapped)
    assert len(pickle.dumps(large)) < 4000
    assert len({fingerprint(s) for s in (source, large, first_percent(source, 60.0))}) == 3
    again = keep(tmp_path / "data", tmp_path / "run").train
    assert fingerprint(first_percent(again, 50.0)) == fingerprint(large)


def test_only_many_images_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    source = labelled([50, 50])
    assert thinned(source, 10) is source
    monkeypatch.setattr(subset, "LARGE", 99)
    assert labels(thinned(source, 10)) == [0] * 5 + [1] * 5


@given(st.integers(1, 500), st.data())
def test_indices_are_evenly_spaced_from_the_first(total: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, total))
    chosen = evenly_spaced(total, count)
    gaps = np.diff([*chosen, total])
    assert (chosen[0], len(set(chosen.tolist()))) == (0, count)
    assert gaps.max() - gaps.min() <= 1


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    limit=st.integers(1, 80),
)
def test_a_limited_choice_is_as_equal_over_classes_as_can_be(counts: list[int], limit: int) -> None:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    chosen = spread_evenly(labels, len(labels), limit)
    assert len(chosen) == min(limit, len(labels))
    assert chosen == sorted(set(chosen))
    taken = [sum(labels[i] == label for i in chosen) for label in range(len(counts))]
    room = [t for t, count in zip(taken, counts, strict=True) if t < count]
    assert not room or max(taken) - min(room) <= 1


def test_a_limited_choice_is_evenly_spaced() -> None:
    assert spread_evenly([0] * 8 + [1] * 4, 12, 4) == [0, 4, 8, 10]
    assert spread_evenly(None, 10, 5) == [0, 2, 4, 6, 8]
    assert spread_evenly(None, 3, None) == [0, 1, 2]
    with pytest.raises(UserError, match="at least 1"):
        spread_evenly(None, 3, 0)


def test_of_classes_of_one_size_the_one_that_appears_first_gets_fewer_images() -> None:
    assert spread_evenly([1, 0, 1, 0], 4, 3) == [0, 1, 3]


def test_the_position_in_a_class_counts_the_images_of_that_class_before() -> None:
    assert position_in_class(np.array([2, 0, 2, 2, 0])).tolist() == [0, 0, 1, 2, 1]


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=5), count=st.integers(1, 10))
def test_first_per_class_keeps_the_first_files_of_each_class(counts: list[int], count: int) -> None:
    source = first_per_class(labelled(counts), count)
    wanted = [f"{label}/{i:03}.png" for label, n in enumerate(counts) for i in range(min(n, count))]
    assert names(source) == wanted
    assert labels(source) == [int(name[0]) for name in wanted]
    assert len(source.classes) == len(counts)


def test_first_per_class_needs_labels_and_a_positive_count() -> None:
    with pytest.raises(UserError, match="no labels"):
        first_per_class(of_files(Path("root"), ["1.jpg"]), 5)
    with pytest.raises(UserError, match="at least 1"):
        first_per_class(labelled([2]), 0)


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=5), fraction=st.floats(0.01, 0.99))
def test_a_holdout_parts_every_class_and_loses_nothing(counts: list[int], fraction: float) -> None:
    source = labelled(counts)
    bank, queries = split_holdout(source, fraction)
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
    _, queries = split_holdout(unlabelled, 0.2)
    assert names(queries) == ["02.png", "07.png", "12.png", "17.png"]
    assert queries.labels is None


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_an_impossible_holdout_is_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        split_holdout(labelled([3]), fraction)


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    percent=st.floats(0, 100, exclude_min=True),
)
def test_first_percent_keeps_the_first_files_of_each_class_and_at_least_one(
    counts: list[int], percent: float
) -> None:
    source = first_percent(labelled(counts), percent)
    assert source.labels is not None
    for label, count in enumerate(counts):
        kept = [name for name in names(source) if name.startswith(f"{label}/")]
        assert kept == [f"{label}/{i:03}.png" for i in range(len(kept))]
        assert len(kept) >= 1
        assert len(kept) == 1 or abs(len(kept) - count * percent / 100) <= 0.5 + 1e-9


def test_first_percent_of_images_without_labels_is_of_all() -> None:
    unlabelled = of_files(Path("root"), [f"{i:02}.png" for i in range(20)])
    assert names(first_percent(unlabelled, 15.0)) == ["00.png", "01.png", "02.png"]
    assert names(first_percent(unlabelled, 100.0)) == names(unlabelled)


@pytest.mark.parametrize("percent", [0.0, -1.0, 100.5])
def test_an_impossible_percentage_is_refused(percent: float) -> None:
    with pytest.raises(UserError, match="above 0 and at most 100"):
        first_percent(labelled([3]), percent)
