"""Annotation files: what is refused, what is left out, and what is told of it."""

import logging
from pathlib import Path
from typing import Any

import pytest

from attmask.data.coco_file import CocoFile, read_coco
from attmask.errors import UserError
from tests.data.coco_files import CATEGORIES, an_image, an_object, write_coco


def read(tmp_path: Path, *annotations: Any, **other: Any) -> CocoFile:
    return read_coco(write_coco(tmp_path / "coco.json", annotations, **other))


@pytest.mark.parametrize("text", ["", "[1, 2", "{}", "[]", '{"images": [], "annotations": {}}'])
def test_a_file_of_another_format_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "coco.json"
    file.write_text(text)
    with pytest.raises(UserError, match=r"coco\.json (is not JSON|has no list of)"):
        read_coco(file)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        ([], "has no images"),
        ([an_image(1), an_image(2, width=0)], "image 2 of .* has the size 0 x 12"),
        ([an_image(1), an_image(2, height=10**30)], "image 2 of .* has the size 20 x 1000"),
        ([an_image(1), an_image(1)], "two images of the id 1"),
        ([an_image(1), an_image(2, file_name="1.png")], "2 images of the file 1.png"),
        ([{"id": 1, "file_name": "1.png", "width": 3}], "image 1 of .* has the height None"),
        (
            [{"id": "a", "file_name": "1.png", "width": 3, "height": 3}],
            "image a of .* has the id 'a', wanted a whole",
        ),
    ],
)
def test_wrong_images_are_refused(tmp_path: Path, images: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(tmp_path, images=images)


@pytest.mark.parametrize(
    ("categories", "said"),
    [
        ([], "no categories"),
        ([*CATEGORIES, {"id": 3, "name": "cow"}], "two categories of the id 3"),
        ([*CATEGORIES, {"id": 4, "name": "cat"}], "two categories called cat"),
        ([{"id": 4}], "category number 1 of .* has no id or no name"),
    ],
)
def test_wrong_categories_are_refused(tmp_path: Path, categories: list[Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read(tmp_path, categories=categories)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"iscrowd": [1]}, r"has iscrowd \[1\]"),
        ({"image_id": 8}, "has the image id 8, which no image has"),
        ({"image_id": None}, "has the image id None"),
        ({"category_id": 2}, "has the category id 2, which no category has"),
        ({"bbox": [1, 2, 3]}, r"has the bbox \[1, 2, 3\], wanted"),
        ({"bbox": [1, 2, 3, float("nan")]}, "wanted x, y, w and h"),
        ({"bbox": [1, 2, 3, "4"]}, "wanted x, y, w and h"),
        ({"area": "large"}, "has the area 'large'"),
        ({"iscrowd": 2}, "has iscrowd 2"),
        ({"segmentation": [1, 2, 3, 4, 5, 6]}, "has a polygon that is not a list of x and y"),
        ({"segmentation": [[1, 2, 3, 4, 5, 6, 7]]}, "has a polygon that is not a list of x and y"),
        ({"segmentation": [[1, 2, 3, 4, 5, "6"]]}, "has a polygon that is not a list of x and y"),
        ({"segmentation": [[1, 2, 3, float("nan"), 5, 6]]}, "has a polygon that is not a list of"),
        ({"segmentation": "poly"}, "neither polygons nor run lengths"),
        ({"segmentation": {"size": [20, 12], "counts": "1"}}, r"its image has \[12, 20\]"),
        ({"segmentation": {"size": [12, 20], "counts": [1, 2]}}, "counts of 3 pixels, .* has 240"),
        ({"segmentation": {"size": [12, 20], "counts": [-1, 241]}}, "neither whole numbers nor"),
    ],
)
def test_a_wrong_annotation_is_refused_by_its_id(
    tmp_path: Path, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=rf"^annotation 52 of .*coco\.json .*{said}.*; correct it"):
        read(tmp_path, an_object(51), an_object(52, **wrong))


def test_boxes_are_clipped_to_the_image(tmp_path: Path) -> None:
    found = read(tmp_path, an_object(1, bbox=[-2, 3, 6, 40]), an_object(2, bbox=[0, 0, 20, 12]))
    assert found.boxes.tolist() == [[0, 3, 4, 12], [0, 0, 20, 12]]


def test_boxes_without_area_are_left_out_in_one_line_a_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = read(
        tmp_path,
        an_object(1, bbox=[2, 3, 0, 4]),
        an_object(2),
        an_object(3, bbox=[2, 3, 5, -4]),
        an_object(4, bbox=[20, 3, 5, 4]),
    )
    assert found.ids[found.order].tolist() == [2]
    assert [record.message.partition("coco.json: ")[2] for record in caplog.records] == [
        "2 boxes have no width or height, the first is annotation 1; left out",
        "1 box has no area inside the image, the first is annotation 4; left out",
    ]


def test_objects_with_only_a_box_are_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    without = an_object(1)
    del without["segmentation"]
    two_points = an_object(2, segmentation=[[1, 1, 2, 2]])
    found = read(tmp_path, without, two_points, an_object(3))
    assert [found.segmentations[row] for row in range(2)] == [None, None]
    assert "2 of 3 objects have no segmentation: the mask is the filled box" in caplog.text
    assert found.has_masks
    assert not read(tmp_path, without).has_masks


def test_segmentations_come_back_exactly(tmp_path: Path) -> None:
    """In hundredths if all coordinates are, else as they are."""
    outline = [[2.1, 3.33, 8, 3, 8.07, 7], [0.01, 0, 1, 0, 239.99, 1]]
    runs = {"size": [12, 20], "counts": [100, 40, 100]}
    coded = {"size": [12, 20], "counts": "T2e0"}
    for finer in ([], [[1 / 3, 2, 3, 4, 5, 6]]):
        found = read(
            tmp_path,
            an_object(1, segmentation=outline + finer),
            an_object(2, segmentation=runs),
            an_object(3, segmentation=coded),
            an_object(4, segmentation=[[1, 1, 2, 1, 2, 2]]),
        ).segmentations
        assert found.coordinates.itemsize == (8 if finer else 4)
        assert found[0] == outline + finer
        counts = found[1]
        assert counts is not None
        assert list(counts) == runs["counts"]
        assert found[2] == b"T2e0"
        assert found[3] == [[1, 1, 2, 1, 2, 2]]
