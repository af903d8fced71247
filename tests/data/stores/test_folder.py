import logging
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.contents import fingerprint
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


def test_a_class_only_val_has_is_named_and_leaves_train_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    touch(tmp_path, "train/a/1.jpg", "train/cat/1.jpg", "val/a/1.jpg")
    before = fingerprint(open_images(tmp_path).train)
    images = open_images(touch(tmp_path, "val/bird/1.jpg"))
    assert fingerprint(images.train) == before
    assert images.train.classes == ("a", "cat")
    assert images.val is not None
    assert (labels(images.val), images.val.classes) == ([0, 2], ("a", "cat", "bird"))
    assert caplog.messages == [f"{tmp_path}: val has a class that train does not have: bird"]


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (("train", "test"), ["train", "test"]),
        (("train", "valid", "test"), ["train", "val", "test"]),
        (("Train", "Val"), ["train", "val"]),
        (("training", "validation"), ["train", "val"]),
        (("TRAINING", "Testing"), ["train", "test"]),
        (("train", "dev", "test"), ["train", "val", "test"]),
        (("train2017", "val2017", "test2017"), ["train", "val", "test"]),
    ],
)
def test_split_folders_are_known_by_what_people_call_them(
    tmp_path: Path, folders: tuple[str, ...], splits: list[str]
) -> None:
    touch(tmp_path, *(f"{folder}/{kind}/{folder}.jpg" for folder in folders for kind in "ab"))
    images = open_images(tmp_path)
    assert list(images.splits) == splits
    for folder, source in zip(folders, images.splits.values(), strict=True):
        assert source.root == tmp_path / folder
        assert (names(source), labels(source)) == ([f"a/{folder}.jpg", f"b/{folder}.jpg"], [0, 1])
        assert source.classes == ("a", "b")


def test_two_folders_of_one_meaning_are_refused_in_one_line(tmp_path: Path) -> None:
    touch(tmp_path, "train/1.jpg", "val/1.jpg", "valid/1.jpg")
    with pytest.raises(UserError, match="the folders val and valid, which both mean val; rename"):
        open_images(tmp_path)
    (tmp_path / "valid/1.jpg").unlink()
    assert list(open_images(tmp_path).splits) == ["train", "val"]


def test_images_beside_the_splits_are_said_to_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    touch(tmp_path, "train/1.jpg", "test/1.jpg", "extra/1.jpg", "masks/1.png", "docs/1.txt")
    assert list(open_images(touch(tmp_path, "cover.jpg")).splits) == ["train", "test"]
    assert caplog.messages == [
        f"{tmp_path}: the images in extra are left out: it is neither train, val nor test",
        f"{tmp_path}: 1 images beside the splits are left out",
    ]


def test_without_train_the_first_held_out_folder_takes_its_place_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    touch(tmp_path, "val/a/1.jpg", "val/b/1.jpg", "test/b/2.jpg")
    images = open_images(tmp_path)
    assert list(images.splits) == ["train", "test"]
    assert (names(images.train), images.train.classes) == (["a/1.jpg", "b/1.jpg"], ("a", "b"))
    said = f"{tmp_path} has no train split: the images of val are used as train"
    assert caplog.messages == [said]
    assert open_images(touch(tmp_path, "bus/1.jpg")).train.classes == ("bus", "test", "val")


def test_other_files_are_counted_by_their_endings(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "a/1.TXT", "a/b.txt", "b/1.raw", "b/none", ".hidden", "masks/1.mat")
    assert open_images(tmp_path).skipped == {".txt": 2, ".raw": 1, "none": 1}


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
