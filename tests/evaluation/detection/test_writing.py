"""Detections as files: a data set in COCO's format that other readers open."""

import contextlib
import io
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from attmask.data.coco import BoxedImages, open_boxed
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.detection.writing import write_detections
from attmask.evaluation.whole_images import WholeImages
from tests.data.coco_files import CATEGORIES, SIZE_WH, an_image, an_object, write_coco
from tests.evaluation.detection.test_measuring import detector

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # pycocotools


@pytest.fixture
def truth(tmp_path: Path) -> BoxedImages:
    file = tmp_path / "data" / "annotations.json"
    write_coco(file, [an_object(1)], [an_image(7), an_image(8)])
    return open_boxed(file)["train"]


@pytest.fixture
def images(truth: BoxedImages) -> WholeImages:
    return WholeImages(open_images(truth.source.root).splits, detector(truth).showing)


def read(out: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((out / "detections.json").read_text())
    return content


def test_the_data_set_opens_here_with_the_objects_that_were_found(
    truth: BoxedImages, images: WholeImages, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    written = write_detections(detector(truth), images, out, nullcontext)
    assert (written.folder, written.images, written.unreadable) == (out, 2, 0)
    for name in ("7.png", "8.png"):
        shutil.copy(truth.source.root / name, out / name)
    again = open_boxed(out / "detections.json")["train"]
    assert (again.names, again.category_ids) == (truth.names, truth.category_ids)
    wanted = truth.annotated(0, SIZE_WH)
    for index in range(2):
        found = again.annotated(index, SIZE_WH)
        assert found.labels.tolist() == wanted.labels.tolist()
        np.testing.assert_allclose(found.boxes, wanted.boxes, atol=1e-3)
        np.testing.assert_array_equal(found.masks(), wanted.masks())
        assert found.area.tolist() == [24]


def test_pycocotools_opens_it(truth: BoxedImages, images: WholeImages, tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    write_detections(detector(truth), images, tmp_path / "out", nullcontext)
    with contextlib.redirect_stdout(io.StringIO()):
        opened = coco.COCO(str(tmp_path / "out" / "detections.json"))
    assert opened.getImgIds() == [1, 2]
    assert {each["name"] for each in opened.cats.values()} == {c["name"] for c in CATEGORIES}
    (annotation,) = opened.imgToAnns[2]
    assert annotation["score"] == pytest.approx(0.9)
    assert annotation["bbox"] == pytest.approx([2, 3, 6, 4], abs=1e-3)
    assert np.array_equal(opened.annToMask(annotation), truth.annotated(0, SIZE_WH).masks()[0])


def test_detections_below_the_threshold_are_neither_written_nor_drawn(
    truth: BoxedImages, images: WholeImages, tmp_path: Path
) -> None:
    for least, count in ((0.85, 2), (0.95, 0)):
        out = tmp_path / f"{least}"
        write_detections(detector(truth), images, out, nullcontext, threshold=least)
        assert len(read(out)["annotations"]) == count
        assert len(read(out)["images"]) == 2
    one, other = (
        np.asarray(Image.open(tmp_path / least / "overlays" / "7.jpg")).astype(int)
        for least in ("0.85", "0.95")
    )
    assert one.shape == other.shape == (307, 512, 3)
    assert abs(one - other).max() > 50


@pytest.mark.parametrize("threshold", [-0.1, 1.0, float("nan")])
def test_a_threshold_that_is_no_score_is_one_line(
    truth: BoxedImages, images: WholeImages, tmp_path: Path, threshold: float
) -> None:
    with pytest.raises(UserError, match="is not a score from 0 to 1; use such as"):
        write_detections(detector(truth), images, tmp_path, nullcontext, threshold=threshold)


def test_boxes_alone_have_the_area_of_their_box_and_no_segmentation(
    truth: BoxedImages, images: WholeImages, tmp_path: Path
) -> None:
    boxes = replace(images, overlays=False)
    write_detections(detector(truth, has_masks=False), boxes, tmp_path / "out", nullcontext)
    first, _ = read(tmp_path / "out")["annotations"]
    assert "segmentation" not in first
    assert first["area"] == pytest.approx(24, abs=0.01)
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["detections.json"]
