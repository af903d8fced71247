"""Layouts of COCO's format: which files are which split, and where their images are."""

from pathlib import Path

import pytest

from attmask.data.coco import open_boxed
from attmask.data.coco_layout import find_annotations
from attmask.errors import UserError
from tests.data.coco_files import an_image, an_object, write_coco


@pytest.mark.parametrize("below", ["", "images"])
def test_the_official_layout_has_a_file_and_a_folder_for_each_split(
    tmp_path: Path, below: str
) -> None:
    for split, number in (("train2017", 7), ("val2017", 8)):
        write_coco(
            tmp_path / f"annotations/instances_{split}.json",
            [an_object(1, number)],
            [an_image(number)],
            pictures=tmp_path / below / split,
        )
    (tmp_path / "annotations/captions_train2017.json").write_text("{}")
    found = open_boxed(tmp_path)
    assert list(found) == ["train", "val"]
    assert found["val"].image_ids == (8,)
    assert found["train"].source.place(0) == str(tmp_path / below / "train2017/7.png")


def test_a_folder_for_each_split_has_its_file_beside_the_images(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        write_coco(tmp_path / split / "_annotations.coco.json", [an_object(1)])
    found = open_boxed(tmp_path)
    assert list(found) == ["train", "val", "test"]
    assert found["val"].source.place(0) == str(tmp_path / "valid/7.png")


@pytest.mark.parametrize("folder", ["", "images"])
@pytest.mark.parametrize("name", ["annotations.json", "mine.json"])
def test_one_file_is_the_train_split(tmp_path: Path, folder: str, name: str) -> None:
    file = write_coco(tmp_path / name, [an_object(1)], pictures=tmp_path / folder)
    found = open_boxed(file if name == "mine.json" else tmp_path)
    assert list(found) == ["train"]
    assert found["train"].source.place(0) == str(tmp_path / folder / "7.png")


def test_a_single_file_without_a_splits_name_is_train(tmp_path: Path) -> None:
    file = tmp_path / "annotations/instances_default.json"
    write_coco(file, [an_object(1)], pictures=tmp_path / "images/default")
    assert find_annotations(tmp_path)["train"].file == file
    assert open_boxed(tmp_path)["train"].source.root == tmp_path / "images/default"


def test_val_alone_becomes_train(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_coco(tmp_path / "val/_annotations.coco.json", [an_object(1)])
    assert list(open_boxed(tmp_path)) == ["train"]
    assert "no train split" in caplog.text


def test_two_files_of_one_split_are_refused(tmp_path: Path) -> None:
    for year in (2014, 2017):
        write_coco(tmp_path / f"annotations/instances_train{year}.json", [])
    with pytest.raises(UserError, match=r"instances_train2014.json and .* both mean train; move"):
        find_annotations(tmp_path)
    for name in ("val", "validation"):
        write_coco(tmp_path / "folders" / name / "annotations.json", [])
    with pytest.raises(UserError, match=r"both mean val; move"):
        find_annotations(tmp_path / "folders")


def test_a_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no annotations in COCO's format; wanted annotations/"):
        open_boxed(tmp_path)
    with pytest.raises(UserError, match="does not exist"):
        open_boxed(tmp_path / "nowhere")


def test_missing_images_are_counted_and_the_first_is_named(tmp_path: Path) -> None:
    images = [an_image(number) for number in (1, 2, 3)]
    write_coco(tmp_path / "annotations.json", [], images, pictures=tmp_path / "images")
    (tmp_path / "images/1.png").unlink()
    (tmp_path / "images/3.png").unlink()
    with pytest.raises(
        UserError, match=r"2 of 3 images of .* missing in .*images, the first is 1.png"
    ):
        open_boxed(tmp_path)
