"""Images with boxes and masks: what an annotation file says of each image."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attmask.data.coco import BoxedImages, open_boxed
from attmask.data.config import DataConfig
from attmask.data.decode import decode, open_picture
from attmask.errors import UserError
from tests.data.coco_files import SIZE_WH, an_image, an_object, write_coco
from tests.real_data import FOLDER, needs

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # pycocotools


def boxed(tmp_path: Path, *annotations: dict[str, Any], **other: Any) -> BoxedImages:
    return open_boxed(write_coco(tmp_path / "coco.json", annotations, **other))["train"]


def test_objects_belong_to_their_images_in_the_order_of_the_file(tmp_path: Path) -> None:
    images = [an_image(number) for number in (9, 7, 8)]
    given = [an_object(n, image) for n, image in ((5, 7), (4, 9), (3, 7), (2, 9))]
    found = boxed(tmp_path, *given, images=images)
    assert found.image_ids == (9, 7, 8)
    assert [found.annotated(i, SIZE_WH).ids.tolist() for i in range(3)] == [[4, 2], [5, 3], []]


def test_classes_are_numbered_by_category_id(tmp_path: Path) -> None:
    found = boxed(tmp_path, an_object(1, category_id=90), an_object(2, category_id=1))
    assert found.category_ids == (1, 3, 90)
    assert found.names == ("dog", "cat", "bird")
    assert found.annotated(0, SIZE_WH).labels.tolist() == [2, 0]


def test_an_object_has_box_area_crowd_and_mask(tmp_path: Path) -> None:
    found = boxed(tmp_path, an_object(1, area=5.5, iscrowd=1)).annotated(0, SIZE_WH)
    assert found.boxes.tolist() == [[2, 3, 8, 7]]
    assert found.area.tolist() == [5.5]
    assert found.is_crowd.tolist() == [True]
    wanted = np.zeros((1, 12, 20), dtype=np.uint8)
    wanted[0, 3:7, 2:8] = 1
    assert np.array_equal(found.masks(), wanted)


def test_an_area_that_is_not_said_is_that_of_the_mask(tmp_path: Path) -> None:
    found = boxed(
        tmp_path,
        an_object(1, area=None, segmentation=[[2, 3, 8, 3, 8, 7]]),
        an_object(2, area=None, segmentation=[]),
        an_object(3, area=2),
    ).annotated(0, SIZE_WH)
    assert found.area.tolist() == [found.masks()[0].sum(), 24, 2]


def test_a_subset_keeps_the_objects_of_its_images(tmp_path: Path) -> None:
    images = [an_image(number) for number in (1, 2, 3)]
    found = boxed(tmp_path, *(an_object(10 + n, n) for n in (1, 2, 3)), images=images)
    some = pickle.loads(pickle.dumps(found.subset([2, 0])))
    assert some.image_ids == (3, 1)
    assert some.source.name(0) == "3.png"
    assert some.annotated(0, SIZE_WH).ids.tolist() == [13]
    assert some.subset(np.array([1])).annotated(0, SIZE_WH).ids.tolist() == [11]


def test_images_to_train_on_have_an_object_that_is_no_crowd(tmp_path: Path) -> None:
    images = [an_image(number) for number in (1, 2, 3, 4)]
    given = an_object(1, 2), an_object(2, 3, iscrowd=1), an_object(3, 4), an_object(4, 4, iscrowd=1)
    found = boxed(tmp_path, *given, images=images)
    assert found.with_objects().image_ids == (2, 4)
    assert found.subset([3, 0]).with_objects().image_ids == (4,)


def test_chosen_objects_keep_their_masks(tmp_path: Path) -> None:
    found = boxed(
        tmp_path,
        an_object(1),
        an_object(2, iscrowd=1),
        an_object(3, segmentation=[[0, 0, 5, 0, 5, 5]]),
    )
    every = found.annotated(0, SIZE_WH)
    some = every.chosen(~every.is_crowd)
    assert some.ids.tolist() == [1, 3]
    assert np.array_equal(some.masks(), every.masks()[[0, 2]])


def test_another_size_than_the_annotations_say_is_refused_with_both(tmp_path: Path) -> None:
    found = boxed(tmp_path, an_object(1))
    with pytest.raises(UserError, match=r"7\.png has 40 x 24 pixels, but 20 x 12 in .*coco\.json"):
        found.annotated(0, (40, 24))


def test_annotations_are_of_the_upright_picture(tmp_path: Path) -> None:
    """The decoder turns pictures by their EXIF orientation, as browsers and labelling tools do."""
    width, height = SIZE_WH
    turned = an_image(7, file_name="7.jpg", width=height, height=width)
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    for said, fits in ((turned, True), (an_image(7, file_name="7.jpg"), False)):
        found = boxed(tmp_path, an_object(1), images=[said])
        Image.new("RGB", SIZE_WH).save(tmp_path / "7.jpg", exif=exif)
        size_wh = open_picture(found.source, 0, DataConfig()).size_wh
        assert size_wh == (height, width)
        if fits:
            assert found.annotated(0, size_wh).masks().shape == (1, width, height)
        else:
            with pytest.raises(UserError, match=r"12 x 20 pixels upright, but 20 x 12 in .*EXIF"):
                found.annotated(0, size_wh)


def test_run_lengths_that_cannot_be_read_name_the_annotation_and_the_picture(
    tmp_path: Path,
) -> None:
    runs = {"size": [12, 20], "counts": "zzzz"}
    found = boxed(tmp_path, an_object(41, segmentation=runs)).annotated(0, SIZE_WH)
    with pytest.raises(UserError, match=r"run lengths of annotation 41, of .*7\.png"):
        found.masks()


def test_splits_with_other_categories_are_refused(tmp_path: Path) -> None:
    write_coco(tmp_path / "train/annotations.json", [])
    write_coco(tmp_path / "val/annotations.json", [], categories=[{"id": 1, "name": "dog"}])
    with pytest.raises(UserError, match=r"category 3 is cat in .*train.* and missing in .*val"):
        open_boxed(tmp_path)


@needs("coco128")
def test_the_first_images_of_coco_are_as_their_file_says() -> None:
    oracle = pytest.importorskip("pycocotools.mask")
    found = open_boxed(FOLDER / "coco128")["train"]
    assert (len(found), len(found.names), found.category_ids[-1]) == (128, 80, 90)
    assert len(found.with_objects()) == 126
    content = json.loads((FOLDER / "coco128/annotations/instances_train2017.json").read_text())
    said = {each["id"]: each for each in content["annotations"]}
    seen: Counter[str] = Counter()
    used = set()
    for index in range(len(found)):
        height, width = decode(found.source, index, DataConfig()).shape[:2]
        objects = found.annotated(index, (width, height))
        seen += Counter(objects=len(objects), crowds=int(objects.is_crowd.sum()))
        used |= set(objects.labels.tolist())
        for number, mask in zip(objects.ids.tolist(), objects.masks(), strict=True):
            given = oracle.frPyObjects(said[number]["segmentation"], height, width)
            wanted = oracle.decode(oracle.merge(given) if isinstance(given, list) else given)
            assert np.array_equal(mask, wanted)
            assert said[number]["image_id"] == found.image_ids[index]
    assert (seen["objects"], seen["crowds"], len(used)) == (939, 10, 71)
