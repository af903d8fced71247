import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.sources import open_images
from attmask.data.stores.folder import Walk
from attmask.errors import UserError
from tests.sources import labels, names, png, touch


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    images = open_images(touch(tmp_path, "b.jpg", "a.PNG", "c.Tiff"))
    assert names(images.train) == ["a.PNG", "b.jpg", "c.Tiff"]
    assert images.train.labels is None
    assert images.train.classes == ()
    assert images.val is None
    assert images.train.place(1) == str(tmp_path / "b.jpg")


def test_sub_folders_are_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    source = open_images(touch(tmp_path, "dog/2.jpg", "dog/1.jpg", "cat/deep/er/3.jpg")).train
    assert names(source) == ["cat/deep/er/3.jpg", "dog/1.jpg", "dog/2.jpg"]
    assert source.classes == ("cat", "dog")
    assert labels(source) == [0, 1, 1]


def test_labels_never_decrease_even_where_a_class_name_continues_another(tmp_path: Path) -> None:
    source = open_images(touch(tmp_path, "a/1.jpg", "a-b/1.jpg", "a b/1.jpg")).train
    assert source.classes == ("a", "a b", "a-b")
    assert labels(source) == [0, 1, 2]


def test_train_and_val_share_the_numbers_of_their_classes(tmp_path: Path) -> None:
    images = open_images(touch(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "val/b/2.jpg"))
    assert labels(images.train) == [0, 1]
    assert images.val is not None
    assert labels(images.val) == [1]
    assert images.val.classes == images.train.classes
    assert images.val.root == tmp_path / "val"


def test_a_class_only_val_has_is_refused_by_name(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1.jpg", "val/a/1.jpg", "val/bird/1.jpg")
    with pytest.raises(UserError, match="bird"):
        open_images(tmp_path)


def test_a_labelled_val_beside_an_unlabelled_train_keeps_its_labels(tmp_path: Path) -> None:
    images = open_images(touch(tmp_path, "train/1.jpg", "val/a/1.jpg", "val/b/1.jpg"))
    assert images.train.labels is None
    assert images.val is not None
    assert labels(images.val) == [0, 1]


def test_masks_and_trimaps_beside_train_are_ignored(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1.jpg", "trimaps/train/a/1.png", "masks/1.png", "README.md")
    images = open_images(tmp_path)
    assert names(images.train) == ["a/1.jpg"]
    assert images.val is None


def test_train_among_other_classes_is_a_class(tmp_path: Path) -> None:
    source = open_images(touch(tmp_path, "bus/1.jpg", "car/1.jpg", "train/1.jpg")).train
    assert source.classes == ("bus", "car", "train")


def test_images_beside_sub_folders_are_taken_without_labels_and_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        source = open_images(touch(tmp_path, "1.jpg", "a/2.jpg")).train
    assert names(source) == ["1.jpg", "a/2.jpg"]
    assert source.labels is None
    assert "without labels" in caplog.text


def test_hidden_files_and_other_files_are_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "._1.jpg", ".cache/2.jpg", "notes.txt", "jpg", "empty/readme.md")
    assert names(open_images(tmp_path).train) == ["1.jpg"]


def test_links_to_folders_are_followed_and_circles_are_not(tmp_path: Path) -> None:
    touch(tmp_path, "elsewhere/1.jpg", "data/a/1.jpg")
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "a" / "up").symlink_to(tmp_path / "data")
    assert names(open_images(tmp_path / "data").train) == ["a/1.jpg", "b/1.jpg"]


def test_a_missing_path_and_a_folder_without_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no .*nowhere"):
        open_images(tmp_path / "nowhere")
    with pytest.raises(UserError, match="it has no files"):
        open_images(tmp_path)
    touch(tmp_path, "a.txt", "b.TXT", "c.csv", "d")
    with pytest.raises(UserError, match=r"found 4 files with endings \.txt, .*wanted \.jpg"):
        open_images(tmp_path)


def test_an_empty_train_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(UserError, match=r"no images in .*train"):
        open_images(tmp_path)


@given(
    paths=st.sets(st.lists(st.sampled_from(["a", "a b", "a-b", "b", "é"]), max_size=3).map(tuple))
)
def test_files_come_in_the_order_of_their_path_parts(
    paths: set[tuple[str, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("walk")
    files = [Path(*parts, f"{i}.jpg") for i, parts in enumerate(sorted(paths))]
    touch(root, *map(str, files))
    walked = [Path(os.fsdecode(name)) for name in Walk(root).files()]
    assert walked == sorted(files)


def test_names_that_are_no_text_can_be_read(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff\xfe.png")).write_bytes(png(3))
    assert open_images(tmp_path).train.read(0) == png(3)


@pytest.mark.parametrize("folder", ["", "a", "train"])
def test_a_link_to_itself_hides_nothing_beside_it(
    tmp_path: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    pictures = [f"{i}.jpg" for i in range(9)]
    touch(tmp_path / folder, *pictures)
    (tmp_path / folder / "itself").symlink_to("itself")
    images = open_images(tmp_path)
    assert [Path(name).name for name in names(images.train)] == pictures
    assert f"cannot follow {tmp_path / folder / 'itself'}: Too many levels" in caplog.text
    assert images.found is not None
    assert not images.found.can_be_trusted, "one day it may lead somewhere"


def test_a_link_to_itself_beside_train_does_no_harm(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1.jpg", "train/b/1.jpg")
    (tmp_path / "itself").symlink_to("itself")
    assert names(open_images(tmp_path).train) == ["a/1.jpg", "b/1.jpg"]
