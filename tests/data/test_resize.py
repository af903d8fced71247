"""Pixels are interpolated, labels are not; both keep their place."""

import numpy as np
import pytest

from attmask.data.resize import resized_labels, resized_pixels


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
