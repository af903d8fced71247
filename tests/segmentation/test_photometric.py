"""Photometric distortion: each change by itself, against its definition."""

import colorsys

import numpy as np
import pytest

from attmask.segmentation.photometric import distort, recoloured

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
GREYS = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)


def test_nothing_changes_with_probability_0() -> None:
    draw = np.random.default_rng(0)
    np.testing.assert_array_equal(distort(PIXELS, draw, 0.0), PIXELS)


def test_greys_are_brightened_by_a_sum_and_contrasted_by_a_factor() -> None:
    """Greys have neither saturation nor hue, so brightness and contrast alone are left."""
    for number in range(30):
        found = distort(GREYS, np.random.default_rng(number), 1.0)[0].astype(np.float64)
        np.testing.assert_array_equal(found[:, 0], found[:, 2])
        one = found[:, 0]
        inner = (one > one.min()) & (one < one.max())  # what was not cut off at 0 or 255
        values = np.flatnonzero(inner)
        factor, offset = np.polyfit(values, one[inner], 1)
        assert 0.49 < factor < 1.51
        assert abs(offset) < 1.5 * 32 + 2
        assert np.abs(factor * values + offset - one[inner]).max() < 1.5


def test_each_change_is_made_as_often_as_its_probability() -> None:
    """All four are left out of 1 in 16 images."""
    same = [
        np.array_equal(distort(PIXELS, np.random.default_rng(number), 0.5), PIXELS)
        for number in range(400)
    ]
    assert 0.03 < np.mean(same) < 0.1


@pytest.mark.parametrize(
    ("saturation", "turn"), [(1.0, 0), (0.5, 0), (1.5, 0), (1.0, 17), (1.2, -18)]
)
def test_saturation_and_hue_change_in_hsv(saturation: float, turn: int) -> None:
    found = recoloured(PIXELS, saturation, turn)[0]
    for before, after in zip(PIXELS[0] / 255, found / 255, strict=True):
        hue, own, value = colorsys.rgb_to_hsv(*before)
        wanted = colorsys.hsv_to_rgb((hue + turn / 180) % 1, min(1.0, own * saturation), value)
        # Hues are whole steps of two degrees, which is up to one thirtieth of a channel.
        assert np.abs(np.array(wanted) - after).max() < 0.035


def test_the_input_is_left_as_it_is() -> None:
    pixels = PIXELS.copy()
    pixels.setflags(write=False)
    for number in range(10):
        distort(pixels, np.random.default_rng(number), 1.0)
    np.testing.assert_array_equal(pixels, PIXELS)
