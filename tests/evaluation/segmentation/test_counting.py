"""Images with masks through a segmenter: the right pixels are counted, at their own size."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.masks import MaskedImages, MasksConfig, open_masked
from attmask.errors import UserError
from attmask.evaluation.segmentation.counting import count_pixels, examples
from attmask.evaluation.segmentation.inference import InferenceConfig
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.evaluation.showing import Showing
from attmask.interrupt import StopRequestedError
from attmask.models.upernet import Segmenter, SegmenterConfig
from tests.data.test_mask_files import write
from tests.evaluation.models import tiny_backbone

SIZES_WH = ((48, 32), (32, 32))


@pytest.fixture
def images(tmp_path: Path) -> MaskedImages:
    """Images whose left half is black, of class 0, and whose right half is white, of class 1."""
    for number, (width, height) in enumerate(SIZES_WH):
        mask = np.zeros((height, width), np.uint8)
        mask[:, width // 2 :] = 1
        write(tmp_path / f"images/{number}.png", 255 * np.repeat(mask[:, :, None], 3, axis=2))
        write(tmp_path / f"masks/{number}.png", mask)
    return open_masked(tmp_path, MasksConfig())["train"]


def segmenter(**inference: Any) -> TrainedSegmenter:
    network = Segmenter(tiny_backbone(), 2, SegmenterConfig(channels=4)).eval()
    config = InferenceConfig(mode="whole", **inference)
    return TrainedSegmenter(
        network, ("dark", "light"), (0, 1), Showing(DataConfig(), (64, 32)), config
    )


class Bright(TrainedSegmenter):
    """Tells black from white by the pixels themselves."""

    def labels(self, shown: Tensor, size_hw: tuple[int, int], autocast: Any) -> Tensor:
        image = torch.nn.functional.interpolate(shown[None].float(), size=size_hw, mode="nearest")
        return (image[0].mean(0) > 127).long()


def bright() -> Bright:
    own = segmenter()
    return Bright(own.network, own.names, own.values, own.showing, own.inference)


def test_all_pixels_are_counted_at_the_size_of_each_mask(images: MaskedImages) -> None:
    found = count_pixels(bright(), images, nullcontext)
    halves = [width * height // 2 for width, height in SIZES_WH]
    assert found.confusion.tolist() == [[sum(halves), 0], [0, sum(halves)]]
    assert found.image_iou == {0: 100.0, 1: 100.0}


def test_a_network_gives_a_class_to_every_pixel_in_the_mode_it_was_in(images: MaskedImages) -> None:
    own = segmenter()
    own.network.train()
    found = count_pixels(own, images, nullcontext)
    assert found.confusion.sum() == sum(width * height for width, height in SIZES_WH)
    assert own.network.training
    assert own.network.decode.training


def test_an_unreadable_image_is_left_out_and_named(
    images: MaskedImages, caplog: pytest.LogCaptureFixture
) -> None:
    Path(images.source.place(0)).write_bytes(b"no picture")
    found = count_pixels(bright(), images, nullcontext)
    assert list(found.image_iou) == [1]
    assert "0.png" in caplog.text
    Path(images.source.place(1)).write_bytes(b"no picture")
    with pytest.raises(UserError, match="2 of 2 images"):
        count_pixels(bright(), images, nullcontext)


def test_a_stop_ends_it_between_two_images(images: MaskedImages) -> None:
    with pytest.raises(StopRequestedError):
        count_pixels(bright(), images, nullcontext, stopped=lambda: True)


def test_worker_processes_read_the_same(images: MaskedImages) -> None:
    counted: list[int] = []
    alone = count_pixels(segmenter(), images, nullcontext)
    with_worker = count_pixels(segmenter(), images, nullcontext, workers=1, count=counted.append)
    np.testing.assert_array_equal(alone.confusion, with_worker.confusion)
    assert sum(counted) == len(images)


def test_examples_show_the_image_its_truth_and_the_prediction(images: MaskedImages) -> None:
    (shown,) = examples(bright(), images, [(1, 12.5)], nullcontext)
    assert shown.name == "1.png"
    assert shown.iou == 12.5
    assert shown.pixels.shape == (32, 32, 3)
    np.testing.assert_array_equal(shown.truth, shown.predicted)


def test_other_weights_have_another_digest() -> None:
    one, other = segmenter(), segmenter()
    with torch.no_grad():
        next(other.network.parameters()).add_(1)
    assert one.digest != other.digest
