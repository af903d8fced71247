"""Folders in a tar are splits, classes, or what the whole was packed in."""

from pathlib import Path

import pytest

from attmask.data.sources import open_images
from tests.sources import labels, png, write_tar


@pytest.mark.parametrize("above", ["", "./", "cifar10/"])
@pytest.mark.parametrize("held_out", ["test", "Testing", "valid"])
def test_folders_in_a_tar_that_are_called_like_splits_are_splits(
    tmp_path: Path, above: str, held_out: str
) -> None:
    members = {
        f"{above}{part}/{kind}/{i}.png": png(i)
        for i, (part, kind) in enumerate([("train", "dog"), ("train", "cat"), (held_out, "dog")])
    }
    one = write_tar(tmp_path / "one" / "cifar10.tar", members)
    for number, (name, content) in enumerate(members.items()):
        write_tar(tmp_path / "shards" / f"{number}.tar", {name: content})
    for data in (one, one.parent, tmp_path / "shards"):
        images = open_images(data)
        assert list(images.splits) == ["train", "val" if held_out == "valid" else "test"]
        assert (labels(images.train), images.train.classes) == ([1, 0], ("cat", "dog"))
        assert images.held_out is not None
        assert (labels(images.held_out), images.held_out.classes) == ([1], ("cat", "dog"))
        assert images.held_out.read(0) == png(2)
        assert images.train.read(1) == png(1)
        assert images.train.name(0).endswith("train/dog/0.png")


def test_folders_in_tars_that_repeat_the_split_of_the_tar_are_no_classes(tmp_path: Path) -> None:
    for part in ("train", "test"):
        members = {f"{part}/{kind}/1.png": png(1) for kind in ("cat", "dog")}
        write_tar(tmp_path / f"{part}.tar", members)
    images = open_images(tmp_path)
    assert images.test is not None
    assert images.train.classes == images.test.classes == ("cat", "dog")
    assert labels(images.test) == [0, 1]


def test_a_folder_called_train_among_others_in_a_tar_is_a_class(tmp_path: Path) -> None:
    file = write_tar(tmp_path / "a.tar", {f"{kind}/1.png": b"" for kind in ("bus", "train")})
    assert open_images(file).train.classes == ("bus", "train")


def test_labels_of_samples_are_kept_in_every_split_of_a_tar(tmp_path: Path) -> None:
    members: dict[str, bytes] = {}
    for i, part in enumerate(["train", "train", "val", "test"]):
        members |= {f"{part}/{i}.png": png(i), f"{part}/{i}.cls": str(10 - i).encode()}
    images = open_images(write_tar(tmp_path / "a.tar", members))
    found = {name: (labels(s), s.classes) for name, s in images.splits.items()}
    assert found == {
        "train": ([1, 0], ("9", "10")),
        "val": ([2], ("9", "10", "8")),
        "test": ([2], ("9", "10", "7")),
    }


def test_members_that_are_passed_over_are_counted(tmp_path: Path) -> None:
    members = {"1.png": b"", "1.cls": b"0", "1.txt": b"", "2.raw": b"", "masks/1.mat": b""}
    images = open_images(write_tar(tmp_path / "a.tar", members))
    assert images.skipped == {".txt": 1, ".raw": 1}


def test_images_beside_the_splits_of_a_tar_are_said_to_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    members = {"train/1.png": b"", "test/1.png": b"", "extra/1.png": b"", "cover.png": b""}
    images = open_images(write_tar(tmp_path / "a.tar", members))
    assert {name: len(source) for name, source in images.splits.items()} == {"train": 1, "test": 1}
    assert f"{tmp_path / 'a.tar'}: 2 images beside the splits are left out" in caplog.messages
