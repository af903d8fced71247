"""Predicted masks as files: the values that were trained on, and pictures to look at."""

import csv
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.data.sources import open_images
from attmask.evaluation.reporting.overlay import colour_of
from attmask.evaluation.segmentation.writing import write_masks
from attmask.evaluation.whole_images import WholeImages
from tests.data.test_mask_files import write
from tests.evaluation.segmentation.test_counting import bright

SIZES_WH = {"a": (48, 32), "deep/b": (32, 32)}


@pytest.fixture
def images(tmp_path: Path) -> WholeImages:
    """Images whose left half is black and whose right half is white."""
    for name, (width, height) in SIZES_WH.items():
        pixels = np.zeros((height, width, 3), np.uint8)
        pixels[:, width // 2 :] = 255
        write(tmp_path / "images" / f"{name}.png", pixels)
    sources = open_images(tmp_path / "images").splits
    return WholeImages(sources, bright().showing)


@pytest.mark.parametrize("values", [(0, 1), (7, 3), (1, 300)])
def test_masks_store_the_values_of_the_classes_at_the_size_of_each_image(
    images: WholeImages, tmp_path: Path, values: tuple[int, int]
) -> None:
    out = tmp_path / "out"
    written = write_masks(replace(bright(), values=values), images, out, nullcontext)
    assert (written.folder, written.images, written.unreadable) == (out, 2, 0)
    for name, (width, height) in SIZES_WH.items():
        stored = np.asarray(Image.open(out / "masks" / f"{name}.png"))
        assert stored.shape == (height, width)
        assert (stored[:, : width // 2] == values[0]).all()
        assert (stored[:, width // 2 :] == values[1]).all()


def test_the_table_says_value_name_and_colour_of_each_class(
    images: WholeImages, tmp_path: Path
) -> None:
    write_masks(replace(bright(), values=(7, 3)), images, tmp_path / "out", nullcontext)
    with (tmp_path / "out" / "classes.csv").open(newline="") as opened:
        assert list(csv.DictReader(opened)) == [
            {"value": "7", "class": "dark", "colour": colour_of(0)},
            {"value": "3", "class": "light", "colour": colour_of(1)},
        ]


def test_pictures_to_look_at_are_written_only_if_they_are_wanted(
    images: WholeImages, tmp_path: Path
) -> None:
    write_masks(bright(), images, tmp_path / "with", nullcontext)
    with Image.open(tmp_path / "with" / "overlays" / "deep" / "b.jpg") as overlay:
        assert overlay.width == 512
        assert overlay.height > 512, "with a legend"
    write_masks(bright(), replace(images, overlays=False), tmp_path / "without", nullcontext)
    assert sorted(each.name for each in (tmp_path / "without").iterdir()) == [
        "classes.csv",
        "masks",
    ]
