import logging

import pytest

from attmask.data.stores.splits import by_prefix, split_of, splits_among, with_train
from attmask.errors import UserError


@pytest.mark.parametrize(
    ("words", "split"),
    [
        (("train", "Training", "TRAIN", "train2017", "train_images", "trainset"), "train"),
        (("val", "Valid", "VALIDATION", "dev", "eval", "val2014"), "val"),
        (("test", "Testing", "test-data", " test "), "test"),
        (("trainer", "trains", "value", "tests", "contest", "test1", "latest", "cat", ""), None),
    ],
)
def test_names_mean_splits_whatever_the_case(words: tuple[str, ...], split: str | None) -> None:
    assert {split_of(word) for word in words} == {split}


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (["bus", "car", "train"], None),
        (["cat", "test", "val"], None),
        (["cat", "dog"], None),
        (["masks", "train", "Trimaps"], {"train": "train"}),
        (["bus", "test", "train"], {"train": "train", "test": "test"}),
        (["test"], {"test": "test"}),
    ],
)
def test_folders_are_splits_or_classes_by_what_lies_beside_them(
    folders: list[str], splits: dict[str, str] | None
) -> None:
    assert splits_among(folders, lambda _: True, "here") == splits


def test_a_held_out_folder_without_images_is_none() -> None:
    held = {"train": True, "val": False, "bus": True}
    assert splits_among(held, held.__getitem__, "here") is None
    del held["bus"]
    assert splits_among(held, held.__getitem__, "here") == {"train": "train"}


def test_two_names_of_one_split_are_refused() -> None:
    with pytest.raises(UserError, match="here has the folders Train and train, which both mean"):
        splits_among(["Train", "train", "test"], lambda _: True, "here")


def test_names_without_a_split_are_all_to_train_on() -> None:
    assert by_prefix(["a.tar", "trains.tar", "val-0.tar"]) == {
        "train": ["a.tar", "trains.tar", "val-0.tar"]
    }


@pytest.mark.parametrize(
    ("held_out", "split"),
    [
        ("val-0.tar", "val"),
        ("validation_0.tar", "val"),
        ("VAL.tar", "val"),
        ("dev.tar", "val"),
        ("test-0.tar", "test"),
    ],
)
def test_train_and_what_is_held_out_are_two_parts(held_out: str, split: str) -> None:
    parts = by_prefix(["train-0.tar", "train-1.tar", held_out])
    assert parts == {"train": ["train-0.tar", "train-1.tar"], split: [held_out]}


def test_val_and_test_are_two_splits_and_other_files_are_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        parts = by_prefix(["test-0.tar", "train-0.tar", "val-0.tar", "extra.tar"])
    assert parts == {"train": ["train-0.tar"], "val": ["val-0.tar"], "test": ["test-0.tar"]}
    assert "1 of 4 files is neither train, val nor test: left out" in caplog.text


def test_without_train_val_or_else_test_takes_its_place(caplog: pytest.LogCaptureFixture) -> None:
    assert with_train({"test": 3, "train": 1}, "here") == {"train": 1, "test": 3}
    assert not caplog.messages
    assert with_train({"test": 3, "val": 2}, "here") == {"train": 2, "test": 3}
    assert with_train({"test": 3}, "here") == {"train": 3}
    assert caplog.messages == [
        "here has no train split: the images of val are used as train",
        "here has no train split: the images of test are used as train",
    ]
