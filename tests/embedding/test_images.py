from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.data.sources import open_images
from attmask.embedding.images import image_rows
from attmask.errors import UserError


def test_rows_are_the_splits_one_after_the_other_in_the_order_of_their_sources(
    scenes: Path,
) -> None:
    images = open_images(scenes)
    rows = image_rows(images, scenes, "all")
    assert len(rows) == 68
    assert images.val is not None
    entries = [rows.piece(row).entry(row) for row in range(68)]
    assert [entry.split for entry in entries] == ["train"] * 48 + ["val"] * 20
    for source, begin in ((images.train, 0), (images.val, 48)):
        assert source.labels is not None
        for index in range(len(source)):
            entry = entries[begin + index]
            assert scenes / entry.name == Path(source.place(index)), "a path below the images"
            assert (entry.label, entry.class_name) == (
                source.labels[index],
                source.classes[source.labels[index]],
            )
    assert rows.classes == images.train.classes


def test_one_split_alone_begins_at_row_0(scenes: Path) -> None:
    rows = image_rows(open_images(scenes), scenes, "val")
    assert len(rows) == 20
    assert rows.piece(0).entry(0).split == "val"
    with pytest.raises(UserError, match="there is no split test in"):
        image_rows(open_images(scenes), scenes, "test")


def test_images_without_labels_have_none(tmp_path: Path) -> None:
    for name in ("b.png", "a.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    rows = image_rows(open_images(tmp_path), tmp_path, "all")
    assert not rows.has_labels
    assert [rows.piece(row).entry(row) for row in range(2)] == [
        ("a.png", "train", None, None),
        ("b.png", "train", None, None),
    ]


def test_images_of_an_array_are_named_by_their_number(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8, 3), dtype=np.uint8))
    rows = image_rows(open_images(tmp_path / "x.npy"), tmp_path / "x.npy", "all")
    assert rows.piece(2).entry(2).name == "x.npy[2]"


def test_no_images_are_refused(scenes: Path) -> None:
    images = open_images(scenes)
    images = type(images)(images.train.subset([]))
    with pytest.raises(UserError, match="has no images to embed; give a folder with some"):
        image_rows(images, scenes, "all")
