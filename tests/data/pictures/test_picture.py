"""Files of every kind give the pixels they show, and their header alone gives their size."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from attmask.data.pictures.picture import JPEG_SHRINKS, Target, picture_of
from tests import real_data
from tests.data.strange import (
    by_tifffile,
    cut,
    detailed,
    exif,
    png_header,
    saved,
    scene,
    strange_files,
    turned,
)

STRANGE = strange_files()
READABLE = [name for name, file in STRANGE.items() if file.pixels is not None]
PHOTOGRAPHS = sorted((real_data.FOLDER / "photos").glob("*.JPEG"))[::12]


def pixels_of(data: bytes | np.ndarray, channels: int = 3, shrink: int = 1) -> np.ndarray:
    return picture_of(data, Target(channels)).pixels(shrink)


def by_pillow(data: bytes, shrink: int, mode: str) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        image.draft(mode, (image.width // shrink, image.height // shrink))
        return np.asarray(image.convert(mode)).reshape(image.height, image.width, -1)


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours.astype(int) - theirs).mean())


@pytest.mark.parametrize("name", READABLE)
def test_every_readable_kind_gives_the_pixels_it_shows(name: str) -> None:
    file = STRANGE[name]
    assert file.pixels is not None
    picture = picture_of(file.data, Target())
    found = picture.pixels()
    assert picture.size_wh == (file.pixels.shape[1], file.pixels.shape[0])
    assert apart(found, file.pixels) <= file.off
    assert found.flags.c_contiguous
    assert np.array_equal(picture.pixels(), found), "a second time"


@pytest.mark.parametrize("name", READABLE)
def test_every_readable_kind_can_be_read_grey(name: str) -> None:
    file = STRANGE[name]
    assert file.pixels is not None
    luma = file.pixels @ np.array([0.299, 0.587, 0.114])
    assert apart(pixels_of(file.data, 1), luma[:, :, None]) <= file.off + 1


# --- JPEG, reduced while it is decoded


@pytest.mark.parametrize("channels", [3, 1])
@pytest.mark.parametrize("shrink", JPEG_SHRINKS)
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}])
def test_a_jpeg_has_exactly_the_pixels_of_pillow(
    options: dict[str, bool | int], shrink: int, channels: int
) -> None:
    data = saved(detailed(203, 149), "JPEG", quality=90, **options)
    theirs = by_pillow(data, shrink, "RGB" if channels == 3 else "L")
    assert np.array_equal(pixels_of(data, channels, shrink), theirs)


@real_data.needs("photos")
@pytest.mark.parametrize("path", PHOTOGRAPHS, ids=lambda path: path.stem)
def test_a_photograph_has_exactly_the_pixels_of_pillow(path: Path) -> None:
    data = path.read_bytes()
    for shrink in JPEG_SHRINKS:
        assert np.array_equal(pixels_of(data, 3, shrink), by_pillow(data, shrink, "RGB"))


@pytest.mark.parametrize("kind", ["RGB", "L", "CMYK"])
@given(width=st.integers(1, 70), height=st.integers(1, 70), orientation=st.integers(1, 8))
def test_a_reduced_jpeg_is_never_smaller_than_its_share(
    kind: str, width: int, height: int, orientation: int
) -> None:
    stored = Image.fromarray(scene(width, height)).convert(kind)
    picture = picture_of(saved(stored, "JPEG", exif=exif(orientation)), Target())
    assert picture.shrinks == JPEG_SHRINKS
    for shrink in picture.shrinks:
        rows, columns, channels = picture.pixels(shrink).shape
        assert columns >= max(1, picture.size_wh[0] // shrink)
        assert rows >= max(1, picture.size_wh[1] // shrink)
        assert channels == 3


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("shrink", [2, 4, 8])
def test_a_reduced_jpeg_stands_upright(orientation: int, shrink: int) -> None:
    upright = scene(160, 128)
    stored = turned(upright, orientation)
    found = pixels_of(saved(stored, "JPEG", exif=exif(orientation), quality=95), 3, shrink)
    small = Image.fromarray(upright).resize((160 // shrink, 128 // shrink), Image.Resampling.BOX)
    assert apart(found, np.asarray(small)) < 3


def test_only_what_can_be_reduced_is() -> None:
    picture = picture_of(saved(scene(), "PNG"), Target())
    assert picture.shrinks == (1,)
    with pytest.raises(ValueError, match="not by 2"):
        picture.pixels(2)


# --- pictures that end too early


@pytest.mark.parametrize("options", [{}, {"progressive": True}])
@pytest.mark.parametrize("shrink", JPEG_SHRINKS)
def test_a_jpeg_that_lacks_little_keeps_all_of_its_rows(
    shrink: int, options: dict[str, bool]
) -> None:
    rows = detailed(160, 320)
    data = saved(rows, "JPEG", quality=90, **options)
    whole, found = pixels_of(data, 3, shrink), pixels_of(cut(data, 0.96), 3, shrink)
    kept = slice(0, int(whole.shape[0] * 0.85))
    assert found.shape == whole.shape
    assert apart(found[kept], whole[kept]) < (30 if options else 0.01)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_a_picture_that_lacks_more_than_a_tenth_is_refused(kind: str, share: float) -> None:
    data = saved(detailed(160, 320), kind)
    with pytest.raises(ValueError, match="per cent of the picture is missing") as fault:
        pixels_of(cut(data, share))
    told = int(str(fault.value).split()[0])
    assert abs(told - 100 * (1 - share)) < 8


def test_a_whole_picture_may_end_in_one_colour() -> None:
    half_black = scene(64, 64)
    half_black[32:] = 0
    for data in (saved(half_black, "PNG"), saved(half_black, "JPEG"), half_black):
        assert pixels_of(data).shape == (64, 64, 3)
    # Nor does it matter what lies behind the end of the file.
    assert pixels_of(saved(half_black, "JPEG") + b"more").shape == (64, 64, 3)


# --- sizes


def test_a_picture_that_is_too_large_is_refused_by_its_header() -> None:
    with pytest.raises(ValueError, match=r"60000 x 60000 pixels are more than data\.max_meg"):
        picture_of(png_header(60000, 60000), Target())


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF", "array"])
def test_the_limit_is_a_setting_and_just_that(kind: str) -> None:
    pixels = scene(100, 50)
    data = pixels if kind == "array" else saved(pixels, kind)
    assert picture_of(data, Target(max_megapixels=0.005)).size_wh == (100, 50)
    with pytest.raises(ValueError, match=r"100 x 50 pixels .*data.max_megapixels=0.0049"):
        picture_of(data, Target(max_megapixels=0.0049))


def test_a_limit_above_that_of_pillow_counts() -> None:
    limit = Image.MAX_IMAGE_PIXELS
    huge = png_header(20000, 15000)
    assert picture_of(huge, Target(max_megapixels=400.0)).size_wh == (20000, 15000)
    assert limit == Image.MAX_IMAGE_PIXELS


def test_opening_decodes_nothing() -> None:
    data = cut(saved(detailed(), "PNG"), 0.2)
    assert picture_of(data, Target()).size_wh == (96, 160)


def test_many_channels_count_as_many_pixels() -> None:
    data = by_tifffile(np.zeros((50, 100, 40), np.uint8), planarconfig="contig")
    assert picture_of(data, Target(40, max_megapixels=0.05)).size_wh == (100, 50)
    with pytest.raises(ValueError, match="100 x 50 pixels of 40 channels are more than"):
        picture_of(data, Target(40, max_megapixels=0.049))


# --- arrays, channels and depths


def test_arrays_are_pictures() -> None:
    colour = scene()
    assert np.array_equal(pixels_of(colour), colour)
    assert np.array_equal(pixels_of(colour[:, :, 0]), colour[:, :, [0, 0, 0]])
    assert np.array_equal(pixels_of(colour.astype(np.float64) / 255), colour)
    assert np.array_equal(pixels_of(colour[::2, ::-1]), colour[::2, ::-1])
    assert picture_of(colour, Target()).size_wh == (48, 40)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 4, 3), ()])
def test_arrays_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="not a picture; wanted H W or H W C"):
        picture_of(np.zeros(shape, np.uint8), Target())


@pytest.mark.parametrize("shape", [(0, 4, 3), (4, 0)])
def test_arrays_without_pixels_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="no pixels"):
        picture_of(np.zeros(shape, np.uint8), Target())


@pytest.mark.parametrize("apart_", [True, False])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [2, 4, 5, 9])
def test_a_tiff_of_any_number_of_channels_is_read_with_as_many(
    channels: int, dtype: type, apart_: bool
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, channels), dtype=np.uint8)
    pixels[0, 0] = 255
    values: np.ndarray = pixels.astype(dtype) * (257 if dtype is np.uint16 else 1)
    data = by_tifffile(
        np.moveaxis(values, 2, 0) if apart_ else values,
        photometric="minisblack",
        planarconfig="separate" if apart_ else "contig",
    )
    assert np.array_equal(pixels_of(data, channels), pixels)
    with pytest.raises(ValueError, match=f"has {channels} channels, {channels + 2} are wanted"):
        pixels_of(data, channels + 2)


def test_a_missing_reader_of_tiffs_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "tifffile", None)
    data = by_tifffile(np.zeros((5, 5, 7), np.uint8), planarconfig="contig")
    with pytest.raises(
        ValueError, match=r"7 channels needs tifffile; pip install 'attmask\[tiff\]'"
    ):
        pixels_of(data, 7)


def test_four_channels_keep_their_transparency_and_inks() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    for kind in ("PNG", "TIFF"):
        assert np.array_equal(pixels_of(saved(pixels, kind), 4), pixels)
    inks = Image.frombytes("CMYK", (30, 20), pixels.tobytes())
    assert np.array_equal(pixels_of(saved(inks, "TIFF"), 4), pixels)
    with pytest.raises(ValueError, match="has 3 channels, 4 are wanted"):
        pixels_of(saved(scene(), "JPEG"), 4)


@pytest.mark.parametrize("bits", [None, 10, 16])
def test_the_depth_given_goes_for_deep_files(bits: int | None) -> None:
    values = np.array([[0, 512, 1023]], np.uint16)
    white = 2 ** (bits or 10) - 1
    for data in (saved(values, "PNG"), saved(values, "TIFF"), values):
        found = picture_of(data, Target(1, bits=bits)).pixels()
        assert found.flatten().tolist() == [round(v / white * 255) for v in (0, 512, 1023)]
