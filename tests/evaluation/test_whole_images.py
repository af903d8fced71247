"""Whole images one after the other: every image has a name of its own below the results."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.data.config import DataConfig
from attmask.data.source import Source, everything
from attmask.data.stores.files import Files
from attmask.errors import UserError
from attmask.evaluation.showing import Showing
from attmask.evaluation.whole_images import (
    WholeImage,
    WholeImages,
    check_folder,
    in_folder,
    safe_name,
)

SHOWING = Showing(DataConfig(), (60, 30))


def files(root: Path, *names: str) -> Source:
    """A red picture of 20 x 10 pixels under each of these names."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 10), (255, 0, 0)).save(root / name, format="PNG")
    return everything(root, Files(root, names))


def seen(*sources: Source, overlays: bool = True) -> list[WholeImage]:
    found: list[WholeImage] = []
    named = {f"split {number}": source for number, source in enumerate(sources)}
    images = WholeImages(named, SHOWING, overlays=overlays)
    written = images.each(Path("out"), found.append)
    assert (written.images, written.unreadable) == (len(images), 0)
    return found


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("cat.jpg", "cat"),
        ("deep/er/cat.JPEG", "deep/er/cat"),
        ("/etc/cat.png", "etc/cat"),
        ("../../cat.png", "cat"),
        ("a/../../cat.png", "a/cat"),
        ("./a//cat.png", "a/cat"),
        ("C:\\pictures\\cat.png", "C/pictures/cat"),
        ("..", "image"),
        ("", "image"),
        ("shard-3.tar/0001.jpg", "shard-3.tar/0001"),
        ("x.npz[12]", "x.npz[12]"),
        ("2024.10.cat", "2024.10.cat"),
        (".jpg", ".jpg"),
    ],
)
def test_a_name_stays_below_its_folder_and_loses_the_ending_of_a_picture(
    name: str, safe: str, tmp_path: Path
) -> None:
    assert safe_name(name) == safe
    file = in_folder(tmp_path, "masks", safe, ".png")
    assert file.resolve().is_relative_to(tmp_path / "masks")
    assert file.parent.is_dir()


def test_no_two_images_have_the_same_name(tmp_path: Path) -> None:
    source = files(tmp_path, "x.jpg", "x.png", "x.png.jpg", "a/x.jpg", "../x.jpg", "y:z.bmp")
    twice = replace(source, rows=np.array([0, 1, 2, 3, 4, 5, 0, 0]))
    assert [image.name for image in seen(twice)] == [
        *("x", "x.png", "x.png.jpg", "a/x"),
        *("x.jpg", "y/z", "x.jpg-2", "x.jpg-3"),
    ]


def test_images_of_several_splits_lie_in_the_folders_of_their_splits(tmp_path: Path) -> None:
    train, val = (files(tmp_path / split, "cat/1.png") for split in ("train", "val"))
    other = files(tmp_path / "other" / "val", "cat/1.png")
    found = seen(train, val, other)
    assert [image.number for image in found] == [0, 1, 2]
    assert [image.file_name for image in found] == [
        "train/cat/1.png",
        "val/cat/1.png",
        "val/cat/1.png",
    ]
    assert [image.name for image in found] == ["train/cat/1", "val/cat/1", "val/cat/1.png"]


def test_an_image_is_shown_to_the_network_and_drawn_on_in_sizes_of_their_own(
    tmp_path: Path,
) -> None:
    source = files(tmp_path, "1.png")
    (image,) = seen(source)
    assert image.size_hw == (10, 20)
    assert image.shown.shape == (3, 30, 60)
    assert image.picture.shape == (256, 512, 3)
    assert (image.picture.reshape(-1, 3) == image.picture.new_tensor([255, 0, 0])).all()
    (without,) = seen(source, overlays=False)
    assert without.picture.numel() == 0


def test_an_unreadable_image_is_counted_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = files(tmp_path, "1.png", "2.png")
    (tmp_path / "1.png").write_bytes(b"no picture")
    found: list[WholeImage] = []
    written = WholeImages({"train": source}, SHOWING).each(tmp_path / "out", found.append)
    assert (written.images, written.unreadable) == (1, 1)
    assert [(image.number, image.name) for image in found] == [(1, "2")]
    assert "1.png" in caplog.text


def test_a_full_disk_is_one_line_with_the_image(tmp_path: Path) -> None:
    def write(image: WholeImage) -> None:
        raise OSError(28, "No space left on device")

    images = WholeImages({"train": files(tmp_path, "1.png")}, SHOWING)
    with pytest.raises(UserError, match=r"prediction of .*1\.png: No space left on device; "):
        images.each(tmp_path, write)


def test_results_go_neither_into_a_file_nor_among_the_images(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(UserError, match="is a file; give a folder"):
        check_folder(file, tmp_path)
    with pytest.raises(UserError, match="is the folder of the images; give another"):
        check_folder(tmp_path, tmp_path)
    check_folder(tmp_path / "new", tmp_path)
