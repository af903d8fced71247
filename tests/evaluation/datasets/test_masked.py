from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.catalog import find_tasks
from attmask.evaluation.datasets.masked import Masked
from tests.evaluation.coloured import NAMES, write_coloured


def names(images: object) -> list[str]:
    source = images.source  # type: ignore[attr-defined]
    return [source.name(index) for index in range(len(source))]


def test_val_is_tested_unless_another_split_is_asked_for(tmp_path: Path) -> None:
    write_coloured(tmp_path, train=3, val=2, test=1)
    opened = Masked().open(tmp_path)
    assert {name: len(source) for name, source in opened.sources.items()} == {"train": 3, "val": 2}
    assert opened.classes.names == NAMES
    asked = Masked(split="test").open(tmp_path)
    assert {name: len(source) for name, source in asked.sources.items()} == {"train": 3, "test": 1}


def test_without_val_and_test_a_part_of_train_is_held_out(tmp_path: Path) -> None:
    opened = Masked(holdout=0.3).open(write_coloured(tmp_path, train=10))
    assert list(opened.sources) == ["train", "held out"]
    assert (len(opened.train), len(opened.test)) == (7, 3)
    assert not set(names(opened.train)) & set(names(opened.test))
    with pytest.raises(UserError, match=r"there is no split test in .*, only train; choose"):
        Masked(split="test").open(tmp_path)


def test_one_image_cannot_be_learned_from_and_tested_on(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has only 1 image with a mask, too few"):
        Masked().open(write_coloured(tmp_path, train=1))


def test_limits_spread_the_images_evenly_with_their_masks(tmp_path: Path) -> None:
    write_coloured(tmp_path, train=8, val=6)
    opened = Masked(max_train_images=2, max_test_images=3).open(tmp_path)
    assert names(opened.train) == ["0.png", "4.png"]
    assert names(opened.test) == ["0.png", "2.png", "4.png"]
    assert [file.name for file in opened.test.files] == names(opened.test)


def test_what_values_mean_is_set_on_the_command_line(tmp_path: Path) -> None:
    words = ["ignored=[2,255]", "segment-knn.names=[a,b]", "max_test_images=1"]
    linear, knn = find_tasks(["segment-linear", "segment-knn"], words)
    write_coloured(tmp_path, train=4, val=2)
    (tmp_path / "classes.txt").unlink()
    assert linear.dataset.open(tmp_path).classes.names == ("0", "1")
    assert knn.dataset.open(tmp_path).classes.names == ("a", "b")
    assert len(knn.dataset.open(tmp_path).test) == 1
