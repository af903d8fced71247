"""Grey, colour, transparent and many-channelled samples in the channels asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from attmask.data.pictures.channels import Samples, in_channels


def noise(channels: int, dtype: type = np.uint8) -> np.ndarray:
    greatest = np.iinfo(dtype).max
    values = np.random.default_rng(0).integers(0, greatest, (6, 9, channels), endpoint=True)
    return values.astype(dtype)


def composited(pixels: np.ndarray) -> np.ndarray:
    """What Pillow shows of a transparent picture on white paper."""
    front = Image.fromarray(pixels).convert("RGBA")
    back = Image.new("RGBA", front.size, "white")
    return np.asarray(Image.alpha_composite(back, front).convert("RGB")).astype(int)


def test_grey_is_three_equal_colours_and_back() -> None:
    grey = noise(1)
    colour = in_channels(Samples(grey), 3, None)
    assert np.array_equal(colour, grey.repeat(3, axis=2))
    assert np.array_equal(in_channels(Samples(colour), 1, None), grey)


def test_the_grey_of_colours_is_pillows_within_one_level() -> None:
    colour = noise(3)
    ours = in_channels(Samples(colour), 1, None)[:, :, 0].astype(int)
    assert np.abs(ours - np.asarray(Image.fromarray(colour).convert("L"))).max() <= 1


@pytest.mark.parametrize("channels", [2, 4])
def test_transparent_pictures_lie_on_white(channels: int) -> None:
    pixels = noise(channels)
    pixels[0, 0, -1], pixels[0, 1, -1] = 0, 255
    ours = in_channels(Samples(pixels, alpha=True), 3, None)
    assert np.abs(ours - composited(pixels)).max() <= 1
    assert ours[0, 0].tolist() == [255, 255, 255]
    assert np.array_equal(ours[0, 1], np.broadcast_to(pixels[0, 1, :-1], 3))


@given(
    colour=arrays.arrays(np.uint8, (4, 4, 1)),
    alpha=arrays.arrays(np.uint8, (4, 4, 1)),
)
def test_white_shines_through_by_the_exact_share(colour: np.ndarray, alpha: np.ndarray) -> None:
    ours = in_channels(Samples(np.concatenate([colour, alpha], 2), alpha=True), 1, None)
    exact = 255 - (255 - colour.astype(float)) * alpha / 255
    assert np.abs(ours - exact).max() <= 0.5 + 1e-9


def test_dark_deep_colours_are_brightened_and_their_transparency_is_not() -> None:
    values = np.array([[[1023, 0, 512, 65535], [1023, 0, 512, 0]]], np.uint16)
    ours = in_channels(Samples(values, alpha=True), 4, None)
    assert ours.tolist() == [[[255, 0, 128, 255], [255, 0, 128, 0]]]


@pytest.mark.parametrize("alpha", [True, False])
def test_four_channels_are_kept_as_they_are(alpha: bool) -> None:
    assert np.array_equal(in_channels(Samples(noise(4), alpha), 4, None), noise(4))


@given(found=st.integers(1, 9), wanted=st.integers(1, 9))
def test_the_first_channels_are_taken_and_too_few_are_refused(found: int, wanted: int) -> None:
    samples = Samples(noise(found))
    if (found, wanted) == (1, 3) or (wanted == 1 and found >= 3):
        assert in_channels(samples, wanted, None).shape == (6, 9, wanted)
    elif found < wanted:
        with pytest.raises(ValueError, match=f"has {found} channels, {wanted} are wanted"):
            in_channels(samples, wanted, None)
    else:
        pixels = in_channels(samples, wanted, None)
        assert np.array_equal(pixels, noise(found)[:, :, :wanted])
        assert pixels.flags.c_contiguous


def test_the_depth_is_told_by_the_channels_that_are_taken() -> None:
    values = np.array([[[1023, 0, 512, 40000, 40000]]], np.uint16)
    assert in_channels(Samples(values), 3, None).tolist() == [[[255, 0, 128]]]
