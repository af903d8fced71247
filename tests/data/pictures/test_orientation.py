"""A picture stands upright again, whichever way its camera was held."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from attmask.data.pictures.orientation import read_orientation, turn_upright, upright_size
from tests.data.strange import exif, turned


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 7])
def test_all_eight_ways_lead_back_to_the_picture(orientation: int, channels: int) -> None:
    upright = np.random.default_rng(0).integers(0, 256, (5, 8, channels), dtype=np.uint8)
    stored = turned(upright, orientation)
    found = turn_upright(stored, orientation)
    assert np.array_equal(found, upright)
    assert found.flags.c_contiguous
    assert upright_size((stored.shape[1], stored.shape[0]), orientation) == (8, 5)


@given(orientation=st.integers(0, 9), before=st.lists(st.integers(256, 273), unique=True))
def test_the_orientation_is_found_among_other_notes(orientation: int, before: list[int]) -> None:
    block = Image.Exif()
    for tag in before:
        block[tag] = 3
    block[0x0112] = orientation
    block[0x0131] = "some camera"
    assert read_orientation(block.tobytes()) == (orientation if 1 <= orientation <= 8 else 1)


def test_both_byte_orders_and_a_missing_start_are_known() -> None:
    little = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    big = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x08\0\0\0\0\0\0"
    assert read_orientation(little) == read_orientation(b"Exif\0\0" + little) == 6
    assert read_orientation(big) == 8


@given(noise=st.binary(max_size=40), length=st.integers(0, 60))
def test_damage_means_upright_and_never_an_error(noise: bytes, length: int) -> None:
    assert read_orientation(exif(1)[:length]) == 1
    assert 1 <= read_orientation(b"II*\0" + noise) <= 8
    assert 1 <= read_orientation(noise) <= 8
