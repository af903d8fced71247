"""The mask file of each image in every layout, and the numbers that it stores."""

import logging
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.data.mask_files import find_masks, folder_with_masks, read_values
from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.real_data import FOLDER, needs

LAYOUTS = {
    "ADE20K": ("images/training/x.jpg", "annotations/training/x.png"),
    "masks": ("images/train/x.jpg", "masks/train/x.png"),
    "labels": ("images/train/x.jpg", "labels/train/x.png"),
    "sub-folders": ("images/train/city/x.jpg", "labels/train/city/x.png"),
    "CamVid": ("train/x.jpg", "trainannot/x.png"),
    "masks beside the splits": ("train/x.jpg", "masks/train/x.png"),
    "classes": ("train/cat/x.jpg", "masks/train/cat/x.png"),
    "trimaps": ("train/cat/x.jpg", "trimaps/train/cat/x.png"),
    "without splits": ("images/x.jpg", "masks/x.png"),
    "TIFF": ("images/x.jpg", "masks/x.tif"),
}


def write(file: Path, values: np.ndarray) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(file)
    return file


def write_pair(root: Path, image: str, mask: str) -> None:
    write(root / image, np.zeros((3, 4, 3), np.uint8))
    write(root / mask, np.zeros((3, 4), np.uint8))


def refusal(data: Path) -> str:
    with pytest.raises(UserError) as caught:
        find_masks(data)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_each_image_its_mask(
    tmp_path: Path, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("x", "y"):
        write_pair(tmp_path, *(file.replace("x.", f"{name}.") for file in LAYOUTS[layout]))
    with caplog.at_level(logging.WARNING):
        found = find_masks(tmp_path)
    source, files = found.splits["train"]
    assert len(source) == len(files) == 2
    stems = [Path(source.name(index)).with_suffix("") for index in range(2)]
    assert [stem.name for stem in stems] == [file.stem for file in files] == ["x", "y"]
    assert files[0] == tmp_path / LAYOUTS[layout][1]
    assert found.are_trimaps == (layout == "trimaps")
    assert not caplog.records


def test_all_splits_are_found_and_masks_beside_them_are_not_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for split in ("train", "val", "test"):
        write_pair(tmp_path, f"{split}/{split}.png", f"{split}annot/{split}.png")
    with caplog.at_level(logging.WARNING):
        found = find_masks(tmp_path)
        assert not caplog.records
        open_images(tmp_path)  # which pre-training does, and there it warns as before
        assert "left out" in caplog.text
    assert list(found.splits) == ["train", "val", "test"]
    for split, (source, files) in found.splits.items():
        assert source.place(0) == str(tmp_path / split / f"{split}.png")
        assert files == (tmp_path / f"{split}annot" / f"{split}.png",)


def test_an_image_without_a_mask_is_named_in_any_split(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write_pair(tmp_path, f"images/train/{name}.jpg", f"masks/train/{name}.png")
    write_pair(tmp_path, "images/val/d.jpg", "masks/val/d.png")
    write(tmp_path / "images/val/e.jpg", np.zeros((3, 4, 3), np.uint8))
    wanted = f"1 of 2 val images has no mask, the first {tmp_path}/images/val/e.jpg"
    assert wanted in refusal(tmp_path)
    assert f"add {tmp_path}/masks/val/e.png" in refusal(tmp_path)
    (tmp_path / "masks/train/a.png").unlink()
    (tmp_path / "masks/train/c.png").unlink()
    assert "2 of 3 train images have no mask" in refusal(tmp_path)


@pytest.mark.parametrize("images", ["images/train/x.jpg", "train/x.jpg", "x.jpg", "cat/x.jpg"])
def test_images_without_masks_are_refused_with_the_layouts(tmp_path: Path, images: str) -> None:
    write(tmp_path / images, np.zeros((3, 4, 3), np.uint8))
    assert f"no masks in {tmp_path}; wanted images/SPLIT/x.jpg beside" in refusal(tmp_path)


def test_what_is_no_folder_of_images_is_refused_with_the_layouts(tmp_path: Path) -> None:
    assert "is not a folder" in refusal(tmp_path / "nothing")
    np.save(tmp_path / "train.npy", np.zeros((2, 4, 4), np.uint8))
    assert "is not a folder" in refusal(tmp_path / "train.npy")


def test_a_folder_of_other_images_beside_images_is_left_out(tmp_path: Path) -> None:
    write_pair(tmp_path, "images/x.jpg", "masks/x.png")
    write(tmp_path / "test/y.jpg", np.zeros((3, 4, 3), np.uint8))
    found = find_masks(tmp_path).splits
    assert list(found) == ["train"]
    assert found["train"][1] == (tmp_path / "masks/x.png",)


def test_masks_in_two_folders_are_refused(tmp_path: Path) -> None:
    write_pair(tmp_path, "images/x.jpg", "masks/x.png")
    write_pair(tmp_path, "images/x.jpg", "labels/x.png")
    assert "has masks in masks and labels" in refusal(tmp_path)


def test_other_files_in_a_folder_called_labels_are_no_masks(tmp_path: Path) -> None:
    write_pair(tmp_path, "images/x.jpg", "masks/x.png")
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "x.txt").write_text("0 0.5 0.5 1 1")
    assert find_masks(tmp_path).splits["train"][1] == (tmp_path / "masks/x.png",)


def gray_png(values: list[list[int]], bits: int) -> bytes:
    """A PNG of fewer than 8 bits, which Pillow does not write."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    size = struct.pack(">IIBBBBB", len(values[0]), len(values), bits, 0, 0, 0, 0)
    rows = ("".join(f"{value:0{bits}b}" for value in row) for row in values)
    packed = b"".join(b"\0" + bytes([int(row.ljust(8, "0"), 2)]) for row in rows)
    body = chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(packed)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(("bits", "values"), [(1, [[0, 1]]), (2, [[3, 1]]), (4, [[11, 2]])])
def test_a_mask_of_few_bits_has_the_numbers_that_it_stores(
    tmp_path: Path, bits: int, values: list[list[int]]
) -> None:
    (tmp_path / "x.png").write_bytes(gray_png(values, bits))
    assert read_values(tmp_path / "x.png").tolist() == values


@pytest.mark.parametrize(
    ("dtype", "ending"),
    [
        (np.uint8, "png"),
        (np.uint8, "bmp"),
        (np.uint16, "png"),
        (np.uint16, "tif"),
        (np.int32, "tif"),
    ],
)
def test_grey_masks_of_any_depth_are_read(
    tmp_path: Path, dtype: type[np.generic], ending: str
) -> None:
    values = np.array([[0, 7], [150, 200 if dtype is np.uint8 else 40_000]]).astype(dtype)
    file = write(tmp_path / f"x.{ending}", values)
    np.testing.assert_array_equal(read_values(file, (2, 2)), values)


def test_a_palette_mask_has_the_numbers_of_its_colours(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[2, 0, 1]], np.uint8))
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    assert image.mode == "P"
    image.save(tmp_path / "x.png")
    assert read_values(tmp_path / "x.png").tolist() == [[2, 0, 1]]


def test_masks_that_hold_no_class_numbers_are_refused_by_name(tmp_path: Path) -> None:
    colours = write(tmp_path / "colours.png", np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(
        UserError, match=r"colours\.png is a picture of colours \(RGB\); a mask must"
    ):
        read_values(colours)
    negative = write(tmp_path / "negative.tif", np.array([[-1, 3]], np.int32))
    with pytest.raises(UserError, match=r"negative\.tif has values from -1 to 3"):
        read_values(negative)


def test_damaged_masks_are_refused_by_name(tmp_path: Path) -> None:
    whole = write(tmp_path / "x.png", np.random.default_rng(0).integers(0, 9, (40, 40), np.uint8))
    data = whole.read_bytes()
    for damaged in (b"", b"no picture", data[: len(data) // 2]):
        whole.write_bytes(damaged)
        with pytest.raises(UserError, match=r"cannot read the mask .*x\.png: .*; create it again"):
            read_values(whole)
    whole.unlink()
    os.mkfifo(whole)  # must not be waited for
    with pytest.raises(UserError, match="not a regular file"):
        read_values(whole)


def test_a_mask_of_another_size_is_refused_with_both_sizes(tmp_path: Path) -> None:
    file = write(tmp_path / "x.png", np.zeros((3, 4), np.uint8))
    with pytest.raises(UserError, match=r"has 4 x 3 pixels, but its image has 5 x 3") as other:
        read_values(file, (5, 3))
    assert "EXIF" not in str(other.value)
    with pytest.raises(UserError, match=r"upright by its EXIF orientation: turn the mask alike"):
        read_values(file, (3, 4))


@needs("camvid")
def test_camvid_has_a_mask_for_every_image() -> None:
    found = find_masks(FOLDER / "camvid").splits
    counts = {split: len(files) for split, (_, files) in found.items()}
    assert counts == {"train": 367, "val": 101, "test": 233}


@needs("pets160")
def test_the_pets_have_trimaps() -> None:
    found = find_masks(FOLDER / "pets160")
    assert found.are_trimaps
    assert {split: len(files) for split, (_, files) in found.splits.items()} == {
        "train": 1480,
        "val": 740,
    }


def test_text_files_beside_images_are_no_masks(tmp_path: Path) -> None:
    write(tmp_path / "images/train/a.png", np.zeros((2, 2, 3), np.uint8))
    (tmp_path / "labels/train").mkdir(parents=True)
    (tmp_path / "labels/train/a.txt").write_text("0 0.5 0.5 1 1")
    splits = open_images(tmp_path / "images").splits
    assert folder_with_masks(splits) is None
    write(tmp_path / "masks/train/a.png", np.zeros((2, 2), np.uint8))
    assert folder_with_masks(splits) == tmp_path
