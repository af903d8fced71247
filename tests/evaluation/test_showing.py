"""Images are shown in the largest size that fits, and nothing else changes."""

import numpy as np
import pytest

from attmask.data.config import DataConfig
from attmask.evaluation.showing import Showing


@pytest.mark.parametrize(
    ("size_hw", "shown_hw"),
    [
        ((100, 200), (50, 100)),
        ((200, 100), (100, 50)),
        ((10, 100), (20, 200)),
        ((50, 50), (50, 50)),
    ],
)
def test_the_shorter_side_is_reached_unless_the_longer_one_is_too_long(
    size_hw: tuple[int, int], shown_hw: tuple[int, int]
) -> None:
    shown = Showing(DataConfig(), (200, 50))(np.zeros((*size_hw, 3), np.uint8))
    assert shown.shape == (3, *shown_hw)


def test_pixels_that_fit_are_those_of_the_image() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 16, 3), dtype=np.uint8)
    shown = Showing(DataConfig(), (16, 8))(pixels)
    np.testing.assert_array_equal(shown.numpy(), pixels.transpose(2, 0, 1))
