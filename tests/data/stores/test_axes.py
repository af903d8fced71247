import re
from pathlib import Path

import numpy as np
import pytest

from attmask.data.sources import open_images
from attmask.data.stores.axes import channels_first
from attmask.errors import UserError

FILE = Path("a.npy")


@pytest.mark.parametrize("sides", [(64, 64), (96, 128), (128, 64)])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 13, 32])
def test_the_only_reading_that_fits_decides(channels: int, sides: tuple[int, int]) -> None:
    assert channels_first(FILE, (channels, *sides), None)
    assert not channels_first(FILE, (*sides, channels), None)


@pytest.mark.parametrize("channels", [20, 200])
def test_small_patches_of_many_channels_are_known_by_being_square(channels: int) -> None:
    assert channels_first(FILE, (channels, 9, 9), None)
    assert not channels_first(FILE, (9, 9, channels), None)


@pytest.mark.parametrize("shape", [(6, 7, 13), (10, 32, 512)])
def test_what_stays_ambiguous_is_refused_with_both_readings_or_decided_by_the_channels(
    shape: tuple[int, int, int],
) -> None:
    first, middle, last = shape
    wanted = (
        f"{first} channels of {middle} × {last} pixels or {last} channels of {first} × {middle}; "
        f"set data.channels (of a task: channels) to {first} or {last}"
    )
    for channels in (None, 3):
        with pytest.raises(UserError, match=re.escape(wanted)) as caught:
            channels_first(FILE, shape, channels)
        assert "\n" not in str(caught.value)
    assert channels_first(FILE, shape, first)
    assert not channels_first(FILE, shape, last)


def test_channels_that_are_asked_for_decide_against_the_likelier_reading() -> None:
    assert not channels_first(FILE, (13, 64, 65), 65)
    assert channels_first(FILE, (3, 4, 8), 3)


def test_a_shape_that_reads_alike_both_ways_is_channels_last_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert not channels_first(FILE, (13, 64, 13), 13)
    assert "13 × 64 × 13 are read as H W C" in caplog.text


@pytest.mark.parametrize("stored", ["first", "last"])
def test_thirteen_channels_are_read_wherever_they_are_stored(tmp_path: Path, stored: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (2, 64, 64, 13), dtype=np.uint8)
    np.save(tmp_path / "a.npy", pixels.transpose(0, 3, 1, 2) if stored == "first" else pixels)
    for channels in (None, 3, 13):
        found = open_images(tmp_path / "a.npy", channels=channels).train.read(1)
        assert isinstance(found, np.ndarray)
        assert np.array_equal(found, pixels[1])
