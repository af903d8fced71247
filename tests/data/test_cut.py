"""Crops against torchvision's on Pillow images, and how far a picture may shrink while decoded."""

import numpy as np
import pytest
import torchvision.transforms.functional as tv
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import InterpolationMode

from attmask.data.colours import Look
from attmask.data.cut import best_shrink, cut
from attmask.data.draws import CropBox, ViewParameters, draw
from attmask.data.views import ViewsConfig
from tests.photographs import photograph

PLAIN = Look(jitter=None, grey=False, blur_sigma=None, solarise=False)


def view(box: CropBox, size: int = 48) -> ViewParameters:
    return ViewParameters(size=size, box=box, flip=False, look=PLAIN)


def levels_apart(ours: np.ndarray, theirs: Image.Image) -> np.ndarray:
    apart: np.ndarray = np.abs(ours.astype(int) - np.asarray(theirs).astype(int))
    return apart


def rows_first(picture: Image.Image, box: CropBox, size: int) -> Image.Image:
    """Pillow's crop and resize, rows before columns.

    Pillow below 13 always goes that way; since then it takes the cheaper one first, and where
    one overshoots at a hard edge and is cut off, the order shows.
    """
    crop = picture.crop(box)
    rows = crop.resize((size, crop.height), Image.Resampling.BICUBIC)
    return rows.resize((size, size), Image.Resampling.BICUBIC)


@pytest.mark.parametrize("size", [16, 96, 224])
@pytest.mark.parametrize(
    "box", [(20, 10, 220, 190), (0, 0, 320, 240), (7, 9, 40, 61), (5, 5, 6, 6)]
)
def test_a_crop_equals_pillow_within_a_level_to_its_very_edge(box: CropBox, size: int) -> None:
    picture = photograph()
    ours = cut(np.array(picture), picture.size, view(box, size))
    apart = levels_apart(ours, rows_first(picture, box, size))
    assert ours.flags.c_contiguous
    assert (apart > 1).mean() < 2e-5  # weights of 16 bits: one value in a hundred thousand
    assert apart.max() <= 2


@pytest.mark.parametrize("seed", range(4))
def test_crops_of_any_draw_equal_torchvision_on_pillow_images(seed: int) -> None:
    picture = photograph(seed=seed)
    for number in range(8):
        drawn = draw(ViewsConfig(), picture.size, seed=seed, epoch=0, sample=0, view=number)
        left, top, right, bottom = drawn.box
        side = [drawn.size, drawn.size]
        theirs = tv.resized_crop(
            picture, top, left, bottom - top, right - left, side, InterpolationMode.BICUBIC
        )
        apart = levels_apart(cut(np.array(picture), picture.size, drawn), theirs)
        assert (apart > 1).mean() < 1e-4
        assert apart.mean() < 0.3


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_any_number_of_channels_is_cut_as_each_channel_would_be(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (50, 60, channels), dtype=np.uint8)
    whole = cut(pixels, (60, 50), view((3, 4, 41, 45), 24))
    assert whole.shape == (24, 24, channels)
    for channel in range(channels):
        one = np.ascontiguousarray(pixels[:, :, channel : channel + 1])
        alone = cut(one, (60, 50), view((3, 4, 41, 45), 24))
        assert np.abs(whole[:, :, channel].astype(int) - alone[:, :, 0]).max() <= 1


@given(
    sides=st.lists(st.tuples(st.integers(1, 4000), st.integers(1, 4000)), min_size=1, max_size=8),
    size=st.sampled_from([24, 96, 224]),
)
def test_no_crop_is_enlarged_because_the_picture_was_shrunk(
    sides: list[tuple[int, int]], size: int
) -> None:
    views = [view((0, 0, w, h), size) for w, h in sides]
    shrink = best_shrink(views, (1, 2, 4, 8))
    least = min(min(w, h) for w, h in sides)
    assert shrink == 1 or least / shrink >= size
    assert shrink == 8 or least / (2 * shrink) < size  # and it could not shrink more


def test_a_picture_that_cannot_shrink_is_decoded_as_it_is() -> None:
    assert best_shrink([view((0, 0, 4000, 4000))], (1,)) == 1


@given(
    box=st.tuples(st.integers(0, 300), st.integers(0, 220), st.integers(1, 20), st.integers(1, 20)),
    shrink=st.sampled_from([2, 4, 8]),
)
def test_a_box_in_a_shrunk_picture_holds_at_least_one_pixel_inside_it(
    box: tuple[int, int, int, int], shrink: int
) -> None:
    left, top, wide, high = box
    here = np.zeros((-(-240 // shrink), -(-320 // shrink), 3), dtype=np.uint8)
    assert cut(here, (320, 240), view((left, top, left + wide, top + high), 8)).shape == (8, 8, 3)


@pytest.mark.parametrize("shrink", [2, 4])
def test_a_crop_of_a_shrunk_picture_looks_like_the_crop_of_the_whole(shrink: int) -> None:
    picture = photograph(1280, 960)
    fewer = np.array(picture.reduce(shrink))
    box = (203, 101, 803, 702)
    whole = cut(np.array(picture), picture.size, view(box)).astype(int)
    assert np.abs(cut(fewer, picture.size, view(box)).astype(int) - whole).mean() < 3
