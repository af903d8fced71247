"""Annotated images through a detector: boxes and masks in pixels of the stored image."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attmask.data.coco import BoxedImages, open_boxed
from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.detection.measuring import detect_all, examples
from attmask.evaluation.showing import Showing
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import Detections
from tests.data.coco_files import SIZE_WH, an_image, an_object, write_coco
from tests.evaluation.models import tiny_backbone

DOG = 0  # the category with the lowest id


class Perfect(Detector):
    """Finds the one object of `an_object`, in an image that is shown in any size."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.backbone = tiny_backbone()

    def detect(self, images: Tensor, sizes_hw: object) -> list[Detections]:
        assert not self.training
        assert isinstance(sizes_hw, list)
        ((height, width),) = sizes_hw
        assert images.shape[-2] >= height
        x, y = width / SIZE_WH[0], height / SIZE_WH[1]
        box = torch.tensor([[2.0 * x, 3.0 * y, 8.0 * x, 7.0 * y]])
        return [Detections(box, torch.tensor([0.9]), torch.tensor([DOG]), torch.ones(1, 28, 28))]


@pytest.fixture
def images(tmp_path: Path) -> BoxedImages:
    objects = [an_object(1, image=7), an_object(2, image=8)]
    write_coco(tmp_path / "annotations.json", objects, [an_image(7), an_image(8)])
    return open_boxed(tmp_path)["train"]


def detector(images: BoxedImages, *, has_masks: bool = True) -> TrainedDetector:
    showing = Showing(DataConfig(), (60, 30))
    network = Perfect().train()
    return TrainedDetector(network, images.names, images.category_ids, showing, has_masks)


def test_what_is_found_is_measured_in_pixels_of_the_stored_image(images: BoxedImages) -> None:
    found = detect_all(detector(images), images, nullcontext)
    values = {metric.key: metric.value for metric in found.metrics}
    assert values["detect.box_ap"] == pytest.approx(100)
    assert values["detect.mask_ap"] == pytest.approx(100)
    assert found.f1 == {0: 100.0, 1: 100.0}


def test_without_masks_boxes_alone_are_measured(images: BoxedImages) -> None:
    found = detect_all(detector(images, has_masks=False), images, nullcontext)
    assert not [metric.key for metric in found.metrics if "mask" in metric.key]


def test_an_unreadable_image_is_left_out_and_named(
    images: BoxedImages, caplog: pytest.LogCaptureFixture
) -> None:
    Path(images.source.place(0)).write_bytes(b"no picture")
    found = detect_all(detector(images), images, nullcontext, workers=1)
    assert list(found.f1) == [1]
    assert "7.png" in caplog.text
    Path(images.source.place(1)).write_bytes(b"no picture")
    with pytest.raises(UserError, match="2 of 2 images"):
        detect_all(detector(images), images, nullcontext)


def test_examples_have_the_mask_of_each_object(images: BoxedImages) -> None:
    (shown,) = examples(detector(images), images, [(1, 100.0)], nullcontext)
    assert shown.name == "8.png"
    np.testing.assert_allclose(shown.found.boxes, shown.truth.boxes, atol=1e-4)
    assert shown.found.rles is not None
    assert shown.found.rles[0]["counts"] == shown.truth.rles()[0]["counts"]
