"""Pixels are interpolated, labels are not; both keep their place."""

import numpy as np
import pytest
import torch

from attmask.data.coco import Annotated
from attmask.data.config import DataConfig
from attmask.data.resize import fitted_hw, resized_labels, resized_pixels
from attmask.detection.augment import DetectAugment, DetectAugmentConfig
from attmask.evaluation.features.forward import normalise
from attmask.evaluation.showing import Showing


@pytest.mark.parametrize("channels", [1, 3, 4, 7])
def test_images_of_any_number_of_channels_are_resized_channel_by_channel(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (9, 12, channels), dtype=np.uint8)
    found = resized_pixels(pixels, (18, 30))
    assert found.shape == (18, 30, channels)
    for channel in range(channels):
        alone = resized_pixels(pixels[:, :, channel : channel + 1], (18, 30))
        np.testing.assert_array_equal(found[:, :, channel : channel + 1], alone)


def test_a_ramp_doubled_in_size_is_a_finer_ramp() -> None:
    ramp = np.array([[[0], [100]]], dtype=np.uint8)
    assert resized_pixels(ramp, (1, 4))[0, :, 0].tolist() == [0, 25, 75, 100]


def test_labels_are_those_of_the_nearest_pixel_and_no_others() -> None:
    labels = np.array([[-1, 3, 300]], dtype=np.int16)
    assert resized_labels(labels, (2, 6)).tolist() == 2 * [[-1, -1, 3, 3, 300, 300]]


def test_what_has_the_size_already_stays_as_it_is() -> None:
    pixels, labels = np.ones((2, 3, 3), np.uint8), np.ones((2, 3), np.int16)
    assert resized_pixels(pixels, (2, 3)) is pixels
    assert resized_labels(labels, (2, 3)) is labels


@pytest.mark.parametrize(
    ("size_hw", "wanted"),
    [((480, 640), (800, 1067)), ((427, 640), (800, 1199)), ((300, 1000), (400, 1333))],
)
def test_sizes_are_rounded_as_in_the_field(
    size_hw: tuple[int, int], wanted: tuple[int, int]
) -> None:
    assert fitted_hw(size_hw, (1333, 800)) == wanted
    assert fitted_hw(size_hw[::-1], (800, 1333)) == wanted[::-1]


@pytest.mark.parametrize(
    ("size_hw", "wanted"),
    [
        ((512, 683), (512, 683)),
        ((256, 341), (512, 682)),
        ((683, 512), (683, 512)),
        ((1024, 2048), (512, 1024)),
        ((100, 1000), (205, 2048)),  # the longer side is at its limit
        ((300, 400), (512, 683)),  # 682.67 is rounded
        ((1, 5000), (1, 2048)),
    ],
)
def test_sizes_that_fit(size_hw: tuple[int, int], wanted: tuple[int, int]) -> None:
    assert fitted_hw(size_hw, (2048, 512)) == wanted


def test_training_and_evaluation_of_detection_see_the_same_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    config = DetectAugmentConfig(sizes=(30,), longest=100, flip=0, crop=False)
    none = np.zeros(0, dtype=np.int64)
    nothing = Annotated(
        "a.png",
        (80, 60),
        none,
        np.zeros((0, 4), np.float32),
        none,
        none.astype(bool),
        none.astype(np.float32),
        (),
    )
    data = DataConfig()
    trained, _ = DetectAugment(config, data)(pixels, nothing, 0)
    shown = Showing(data, (100, 30))(pixels)[None]
    torch.testing.assert_close(trained, normalise(shown, data.mean, data.std)[0])
