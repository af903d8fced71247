"""How images are divided into those to train on, to select by and to measure on."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attmask.data.images import Images
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.finetuning.config import LabelsConfig
from attmask.finetuning.data import divide
from attmask.tuning.config import SelectionConfig
from tests.finetuning.sources import Numbers

LABELS = LabelsConfig()


def source(images: int) -> Source:
    return Source(Path("DATA"), Numbers(images), range(images), np.arange(images) % 2, ("a", "b"))


ALL = Images(source(40), source(10), source(6))


def test_val_selects_and_test_measures() -> None:
    found = divide(ALL, SelectionConfig(), LABELS)
    assert (len(found.train), len(found.selecting), len(found.final)) == (40, 10, 6)
    assert (found.selected_on, found.measured_on) == ("val", "test")


def test_the_papers_recipes_select_on_test_and_measure_there() -> None:
    found = divide(ALL, SelectionConfig(split="test"), LABELS)
    assert (len(found.train), len(found.selecting), len(found.final)) == (40, 6, 6)
    assert found.selected_on == found.measured_on == "test"


def test_train_and_val_are_joined_with_their_labels() -> None:
    found = divide(ALL, SelectionConfig(train=("train", "val"), split="test"), LABELS)
    assert len(found.train) == 50
    assert found.train.labels is not None
    assert found.train.labels[[0, 1, 40, 41]].tolist() == [0, 1, 0, 1]
    assert found.train.name(41) == "1.png"
    assert found.train.read(45).max() == 5  # type: ignore[union-attr]


def test_without_val_a_part_of_every_class_of_train_is_held_out() -> None:
    found = divide(Images(source(40)), SelectionConfig(holdout=0.2), LABELS)
    assert (len(found.train), len(found.selecting)) == (32, 8)
    assert found.selecting.labels is not None
    assert np.bincount(found.selecting.labels).tolist() == [4, 4]
    names = [{s.name(i) for i in range(len(s))} for s in (found.train, found.selecting)]
    assert not names[0] & names[1]
    assert found.selected_on == "8 images of train"


def test_without_val_test_stays_unseen_until_the_end() -> None:
    found = divide(replace(ALL, val=None), SelectionConfig(), LABELS)
    assert found.selected_on == "6 images of train"
    assert (found.measured_on, len(found.final)) == ("test", 6)


@pytest.mark.parametrize(
    ("selection", "wanted"),
    [
        (SelectionConfig(train=("train", "val")), "there is no split val in DATA"),
        (SelectionConfig(split="test"), "there is no split test in DATA, only train"),
    ],
)
def test_a_split_that_is_not_there_is_refused(selection: SelectionConfig, wanted: str) -> None:
    with pytest.raises(UserError, match=wanted):
        divide(Images(source(8)), selection, LABELS)


def test_images_to_measure_on_must_have_a_label_where_there_may_be_several() -> None:
    texts = ("cat", "dog|cat", "|")
    train = Source(Path("DATA"), Numbers(8), range(8), np.arange(8) % 2, texts)
    val = Source(Path("DATA"), Numbers(4), range(4), np.full(4, 2), texts)
    with pytest.raises(UserError, match=r"none of the images to measure on \(val\) in DATA has a"):
        divide(Images(train, val), SelectionConfig(), LabelsConfig(multi_label=True))


def test_images_that_all_have_other_labels_are_divided_by_their_rarest() -> None:
    texts = tuple(f"a|b{index % 4}|c{index}" for index in range(24))
    train = Source(Path("DATA"), Numbers(24), range(24), np.arange(24), texts)
    found = divide(Images(train), SelectionConfig(holdout=0.5), LabelsConfig(multi_label=True))
    assert len(found.train) + len(found.selecting) == 24


def test_one_image_a_class_leaves_none_to_select_by() -> None:
    with pytest.raises(UserError, match="one image of each class"):
        divide(Images(source(2)), SelectionConfig(), LABELS)
