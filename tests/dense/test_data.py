"""How annotated images are divided into those to train on, to select by and to measure on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from attmask.data.config import DataConfig
from attmask.data.source import Source
from attmask.dense.data import Divided, divide
from attmask.errors import UserError
from attmask.tuning.config import SelectionConfig
from tests.finetuning.sources import Numbers

DATA = DataConfig()


@dataclass(frozen=True, eq=False)
class Annotated:
    """Images that know their numbers."""

    numbers: tuple[int, ...]

    @property
    def source(self) -> Source:
        images = len(self.numbers)
        return Source(Path("DATA"), Numbers(images), range(images), None, ())

    def __len__(self) -> int:
        return len(self.numbers)

    def subset(self, indices: Sequence[int] | np.ndarray) -> "Annotated":
        return Annotated(tuple(self.numbers[int(index)] for index in indices))


TRAIN, VAL, TEST = (Annotated(tuple(range(*ends))) for ends in ((0, 40), (40, 50), (50, 56)))
ALL = {"train": TRAIN, "val": VAL, "test": TEST}


def joined(parts: Sequence[Annotated]) -> Annotated:
    return Annotated(tuple(number for part in parts for number in part.numbers))


def sizes(found: Divided[Annotated]) -> tuple[int, int, int]:
    return len(found.train), len(found.selecting), len(found.final)


def test_val_selects_and_test_measures() -> None:
    found = divide(ALL, SelectionConfig(), DATA)
    assert (found.train, found.selecting, found.final) == (TRAIN, VAL, TEST)
    assert (found.selected_on, found.measured_on) == ("val", "test")


def test_a_chosen_split_selects_and_measures() -> None:
    found = divide(ALL, SelectionConfig(split="test"), DATA)
    assert (found.train, found.selecting, found.final) == (TRAIN, TEST, TEST)
    assert found.selected_on == found.measured_on == "test"


def test_without_val_a_part_of_train_is_held_out_and_test_stays_unseen() -> None:
    found = divide({"train": TRAIN, "test": TEST}, SelectionConfig(holdout=0.2), DATA)
    assert sizes(found) == (32, 8, 6)
    assert sorted(found.train.numbers + found.selecting.numbers) == list(TRAIN.numbers)
    assert (found.selected_on, found.measured_on) == ("8 images of train", "test")


def test_train_alone_is_selected_by_and_measured_on_its_part() -> None:
    found = divide({"train": TRAIN}, SelectionConfig(holdout=0.2), DATA)
    assert sizes(found) == (32, 8, 8)
    assert found.measured_on == found.selected_on == "8 images of train"


def test_per_cent_are_the_first_images_and_leave_the_others_as_they_are() -> None:
    found = divide(ALL, SelectionConfig(), DataConfig(percent=20))
    assert found.train.numbers == tuple(range(8))
    assert sizes(found) == (8, 10, 6)
    assert len(divide(ALL, SelectionConfig(), DataConfig(percent=0.1)).train) == 1
    part = divide({"train": TRAIN}, SelectionConfig(holdout=0.2), DataConfig(percent=50))
    assert sizes(part) == (16, 8, 8)


def test_splits_are_joined_where_that_is_possible() -> None:
    selection = SelectionConfig(train=("train", "val"), split="test")
    assert divide(ALL, selection, DATA, joined).train.numbers == tuple(range(50))
    with pytest.raises(UserError, match="are several annotation files; join them into one"):
        divide(ALL, selection, DATA)


@pytest.mark.parametrize(
    ("splits", "selection", "data", "wanted"),
    [
        ("train", SelectionConfig(train=("train", "val")), DATA, "there is no split val in DATA"),
        ("train val", SelectionConfig(split="test"), DATA, "only train, val; choose another"),
        ("train val", SelectionConfig(), DataConfig(per_class=3), "use data.percent"),
    ],
)
def test_what_is_not_there_is_one_line(
    splits: str, selection: SelectionConfig, data: DataConfig, wanted: str
) -> None:
    with pytest.raises(UserError, match=wanted):
        divide({name: ALL[name] for name in splits.split()}, selection, data, joined)


def test_one_image_cannot_be_divided() -> None:
    with pytest.raises(UserError, match="1 image, of which none is left to select the best"):
        divide({"train": Annotated((0,))}, SelectionConfig(), DATA)
