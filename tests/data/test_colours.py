"""Every step against torchvision's on Pillow images, on fixed draws."""

from collections.abc import Callable

import numpy as np
import pytest
import torchvision.transforms.functional as tv
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from attmask.data.colours import (
    Jitter,
    Look,
    blur,
    blur_taps,
    brighten,
    change_contrast,
    recolour,
    saturate,
    turn_hue,
)
from tests.photographs import photograph

PLAIN = Look(jitter=None, grey=False, blur_sigma=None, solarise=False)
FACTORS = (0.6, 0.83, 1.0, 1.17, 1.4)
PICTURES = [photograph(224, 224, seed=seed) for seed in range(3)]


def levels_apart(ours: np.ndarray, theirs: Image.Image) -> np.ndarray:
    apart: np.ndarray = np.abs(ours.astype(int) - np.asarray(theirs).astype(int))
    return apart


def pixels(image: Image.Image) -> np.ndarray:
    array = np.array(image)
    return array.reshape(image.height, image.width, -1)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(
    ("ours", "theirs", "farthest"),
    [
        (brighten, tv.adjust_brightness, 0),
        (change_contrast, tv.adjust_contrast, 1),
        (saturate, tv.adjust_saturation, 1),
    ],
)
def test_brightness_contrast_and_saturation_equal_torchvision_within_a_level(
    ours: Callable[[np.ndarray, float], np.ndarray],
    theirs: Callable[[Image.Image, float], Image.Image],
    farthest: int,
    factor: float,
) -> None:
    for picture in PICTURES:
        apart = levels_apart(ours(pixels(picture), factor), theirs(picture, factor))
        assert apart.max() <= farthest
        assert apart.mean() < 0.05


@pytest.mark.parametrize("turn", [-0.5, -0.1, -0.02, 0.0, 0.05, 0.1, 0.31])
def test_turned_hues_equal_torchvision_within_a_level_on_average(turn: float) -> None:
    for picture in PICTURES:
        ours, theirs = turn_hue(pixels(picture), turn), tv.adjust_hue(picture, turn)
        assert levels_apart(ours, theirs).mean() < 1
        assert abs((ours.astype(int) - np.asarray(theirs).astype(int)).mean()) < 0.5


def test_a_turn_of_nothing_leaves_the_hues_where_they_are() -> None:
    picture = pixels(PICTURES[0])
    back = turn_hue(picture, 0.0).astype(int) - picture
    assert abs(back).mean() < 1
    assert abs(back.mean(axis=(0, 1))).max() < 0.3


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.3, 0.45, 0.7, 1.0, 1.37, 2.0, 5.0])
def test_blur_equals_pillow_within_a_level_on_average(sigma: float) -> None:
    for picture in PICTURES:
        theirs = picture.filter(ImageFilter.GaussianBlur(sigma))
        apart = levels_apart(blur(pixels(picture), sigma), theirs)
        assert apart.mean() < 1
        assert apart[8:-8, 8:-8].max() <= 3  # three roundings of Pillow, one here


@given(sigma=st.floats(0.01, 20))
def test_the_taps_of_a_blur_are_even_sum_to_one_and_have_its_std(sigma: float) -> None:
    taps = blur_taps(sigma).astype(np.float64)
    places = np.arange(len(taps)) - len(taps) // 2
    assert np.allclose(taps, taps[::-1], atol=1e-6)
    assert np.isclose(taps.sum(), 1, atol=1e-5)
    assert np.isclose((taps * places**2).sum(), sigma**2, rtol=1e-3, atol=1e-4)


def test_grey_and_solarised_pictures_equal_torchvision_within_a_level() -> None:
    grey, solarised = (
        Look(jitter=None, grey=True, blur_sigma=None, solarise=False),
        Look(jitter=None, grey=False, blur_sigma=None, solarise=True),
    )
    for picture in PICTURES:
        theirs = tv.rgb_to_grayscale(picture, num_output_channels=3)
        assert levels_apart(recolour(pixels(picture), grey), theirs).max() <= 1
        assert (
            levels_apart(recolour(pixels(picture), solarised), tv.solarize(picture, 128)).max() == 0
        )


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_all_steps_together_come_in_the_order_drawn_and_stay_close_to_torchvision(
    order: tuple[int, ...],
) -> None:
    factors = (1.3, 0.7, 1.15, -0.08)
    look = Look(Jitter(order, factors), grey=False, blur_sigma=1.3, solarise=False)
    steps = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)
    for picture in PICTURES:
        theirs = picture
        for step in order:
            theirs = steps[step](theirs, factors[step])
        theirs = theirs.filter(ImageFilter.GaussianBlur(1.3))
        assert levels_apart(recolour(pixels(picture), look), theirs).mean() < 1


@pytest.mark.parametrize("channels", [1, 2, 4, 7])
def test_without_three_channels_only_what_needs_no_colours_is_done(channels: int) -> None:
    chance = np.random.default_rng(0)
    picture = chance.integers(0, 256, (24, 20, channels), dtype=np.uint8)
    colours = Look(Jitter((3, 2, 0, 1), (1.0, 1.0, 1.7, 0.3)), True, None, False)
    assert np.array_equal(recolour(picture, colours), picture)
    everything = Look(Jitter((3, 1, 2, 0), (1.2, 0.8, 1.2, 0.1)), True, 1.0, True)
    changed = recolour(picture, everything)
    assert changed.shape == picture.shape
    assert changed.flags.c_contiguous
    alone = recolour(np.ascontiguousarray(picture[:, :, :1]), Look(None, True, 1.0, True))
    assert np.array_equal(recolour(picture, Look(None, True, 1.0, True))[:, :, :1], alone)


def test_the_given_pixels_stay_as_they_are() -> None:
    picture = pixels(PICTURES[0])
    before = picture.copy()
    recolour(picture, Look(Jitter((3, 1, 2, 0), (1.2, 0.8, 1.2, 0.1)), True, 1.0, True))
    assert np.array_equal(picture, before)
    assert recolour(picture, PLAIN) is picture
