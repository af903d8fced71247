"""Files of results in COCO's format."""

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from attmask.data.coco import open_boxed
from attmask.evaluation.metrics.detected import Found
from attmask.evaluation.reporting.detections import write_results
from tests.data.coco_files import an_image, an_object, write_coco

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # pycocotools


def test_results_have_the_ids_of_the_annotation_file_and_pycocotools_reads_them(
    tmp_path: Path,
) -> None:
    file = write_coco(
        tmp_path / "coco.json", [an_object(1, 9)], [an_image(9), an_image(4), an_image(5)]
    )
    images = open_boxed(file)["train"]
    masks = torch.zeros(2, 12, 20, dtype=torch.bool)
    masks[:, 3:7, 2:8] = True
    boxes = torch.tensor([[2.0, 3, 8, 7], [0, 0, 5.5, 4]])
    seen = Found.of(boxes, torch.tensor([0.75, 0.5]), torch.tensor([0, 2]), [masks])
    without = Found.of(boxes[:1], torch.tensor([0.25]), torch.tensor([1]), None)
    write_results(tmp_path / "results.json", {2: without, 0: seen}, images)
    results = json.loads((tmp_path / "results.json").read_text())
    assert [(r["image_id"], r["category_id"], r["score"]) for r in results] == [
        (9, 1, 0.75),
        (9, 90, 0.5),
        (5, 3, 0.25),
    ]
    assert [r["bbox"] for r in results] == [[2, 3, 6, 4], [0, 0, 5.5, 4], [2, 3, 6, 4]]
    assert "segmentation" not in results[2]
    coco = pytest.importorskip("pycocotools.coco")
    with contextlib.redirect_stdout(io.StringIO()):
        read = coco.COCO(str(file)).loadRes(str(tmp_path / "results.json"))
    assert np.array_equal(read.annToMask(read.anns[1]), masks[0].numpy())
