import shutil
from pathlib import Path

import numpy as np
import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Labelled, Split


def test_train_and_val_are_opened_with_the_same_classes(scenes: Path) -> None:
    data = Labelled().open(scenes)
    assert (len(data.train), len(data.test)) == (48, 20)
    assert data.train.classes == data.test.classes
    assert data.classes == len(data.train.classes)
    assert list(data.sources) == ["train", "val"]


def test_less_of_each_class_is_learned_from_and_all_is_tested(scenes: Path) -> None:
    few = Labelled(per_class=2).open(scenes)
    assert few.train.labels is not None
    assert np.bincount(few.train.labels).max() == 2
    assert len(few.test) == 20
    assert len(Labelled(percent=50).open(scenes).train) < 48


def test_a_class_without_an_image_to_learn_from_is_named(scenes: Path, tmp_path: Path) -> None:
    data = Labelled().open(scenes)
    assert data.missing_in_train() == []
    assert data.train.labels is not None
    without = Split(data.train.subset(np.flatnonzero(data.train.labels != 1)), data.test)
    assert without.missing_in_train() == [data.train.classes[1]]
    shutil.copytree(scenes, tmp_path / "images")
    shutil.rmtree(tmp_path / "images/train" / data.train.classes[1])
    lacking = Labelled().open(tmp_path / "images")
    assert lacking.missing_in_train() == [data.train.classes[1]]
    assert set(lacking.train.classes) == set(data.train.classes)
    assert lacking.train.classes == lacking.test.classes
    assert lacking.classes == data.classes


@pytest.mark.parametrize(("wanted", "tested"), [("auto", "val"), ("val", "val"), ("test", "test")])
def test_val_or_test_is_tested_on_as_asked_for(
    scenes: Path, tmp_path: Path, wanted: str, tested: str
) -> None:
    shutil.copytree(scenes, tmp_path / "all")
    shutil.copytree(scenes / "val", tmp_path / "all/Test")
    next((tmp_path / "all/Test").rglob("*.png")).unlink()
    data = Labelled.model_validate({"split": wanted}).open(tmp_path / "all")
    assert list(data.sources) == ["train", tested]
    assert len(data.test) == (20 if tested == "val" else 19)
    shutil.rmtree(tmp_path / "all/val")
    if wanted == "val":
        with pytest.raises(UserError, match=r"there is no split val in .*, only train, test"):
            Labelled(split="val").open(tmp_path / "all")
    else:
        data = Labelled.model_validate({"split": wanted}).open(tmp_path / "all")
        assert list(data.sources) == ["train", "test"]


@pytest.mark.parametrize(("keep", "wrong"), [("train", "no test images"), (None, "no labels")])
def test_what_is_missing_is_said_with_the_layout(
    scenes: Path, tmp_path: Path, keep: str | None, wrong: str
) -> None:
    if keep:
        shutil.copytree(scenes / keep, tmp_path / keep)
    else:
        for part in ("train", "val"):
            (tmp_path / part).mkdir()
            for i, file in enumerate(sorted((scenes / part).rglob("*.png"))[:3]):
                shutil.copy(file, tmp_path / part / f"{i}.png")
    with pytest.raises(UserError, match=rf"{wrong}.*; wanted train/CLASS/\*\.jpg and val/CLASS"):
        Labelled().open(tmp_path)
