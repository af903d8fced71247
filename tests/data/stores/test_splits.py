import logging

import pytest

from attmask.data.stores.splits import by_prefix


def test_names_without_a_split_are_all_to_train_on() -> None:
    assert by_prefix(["a.tar", "trains.tar", "val-0.tar"]) == {
        "train": ["a.tar", "trains.tar", "val-0.tar"]
    }


@pytest.mark.parametrize("held_out", ["val-0.tar", "validation_0.tar", "VAL.tar", "test-0.tar"])
def test_train_and_what_is_held_out_are_two_parts(held_out: str) -> None:
    parts = by_prefix(["train-0.tar", "train-1.tar", held_out])
    assert parts == {"train": ["train-0.tar", "train-1.tar"], "val": [held_out]}


def test_a_test_split_serves_only_where_there_is_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        parts = by_prefix(["test-0.tar", "train-0.tar", "val-0.tar", "extra.tar"])
    assert parts == {"train": ["train-0.tar"], "val": ["val-0.tar"]}
    assert "2 of 4 files are neither train nor val: left out" in caplog.text
