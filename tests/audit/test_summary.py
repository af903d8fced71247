"""Numbers over many pictures, against numpy on the pixels themselves."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.audit.facts import Looks, Speed
from attmask.audit.summary import (
    channels_to_train_on,
    classes,
    decode_speed,
    kinds,
    pixels,
    sizes,
    spread,
)
from attmask.data.pictures.stored import StoredFormat
from attmask.data.sources import open_images
from tests.audit.pictures import colours, write


def look(
    values: tuple[float, ...] = (0.5,) * 3,
    *,
    size: tuple[int, int] = (8, 8),
    colourless: bool = False,
    speed: Speed | None = None,
) -> Looks:
    kind = StoredFormat("PNG", "RGB", len(values), 8)
    squares = tuple(value**2 for value in values)
    return Looks(kind, *size, None, values, squares, colourless, speed)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_a_spread_rises_from_the_least_to_the_greatest(values: list[float]) -> None:
    found = spread(values)
    steps = [found.min, found.q05, found.median, found.q95, found.max]
    assert (found.min, found.max) == (min(values), max(values))
    assert steps == pytest.approx(sorted(steps))


@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=20))
def test_mean_and_std_are_those_of_all_pictures_together(
    values: list[tuple[float, float, float]],
) -> None:
    found = pixels([look(value) for value in values], 3)
    assert np.allclose(found.mean, np.mean(values, axis=0), atol=1e-6)
    assert np.allclose(found.std, np.std(values, axis=0), atol=1e-4)


def test_grey_pictures_among_colours_count_in_every_channel() -> None:
    found = pixels([look((0.0, 0.2, 0.4)), look((1.0,))], 3)
    assert np.allclose(found.mean, (0.5, 0.6, 0.7))


@pytest.mark.parametrize(
    ("looks", "wanted"),
    [
        ([look((0.5,), colourless=True)] * 3, 1),
        ([look(colourless=True)] * 3, 1),
        ([look((0.5,), colourless=True)] * 3 + [look()], 3),
        ([look((0.5,) * 5)] * 3 + [look()], 5),
        ([look()] * 3 + [look((0.5,) * 5)], 3),
    ],
)
def test_channels_are_those_of_most_and_one_only_where_none_has_colours(
    looks: list[Looks], wanted: int
) -> None:
    assert channels_to_train_on(looks) == wanted


def test_sizes_and_kinds_count_every_picture() -> None:
    looks = [look(size=(10, 20)), look((0.5,), size=(40, 20), colourless=True)]
    found = sizes(looks)
    assert (found.width.min, found.width.max) == (10, 40)
    assert (found.short_side.min, found.short_side.max) == (10, 20)
    assert (found.aspect.min, found.aspect.max) == (0.5, 2)
    counted = kinds(looks)
    assert counted.channels == {"3": 1, "1": 1}
    assert (counted.formats, counted.bits, counted.colourless) == ({"PNG": 2}, {"8": 2}, 1)


def test_classes_are_counted_over_all_images_and_singles_named(tmp_path: Path) -> None:
    for name, count in (("ant", 3), ("bee", 1), ("cat", 2)):
        for index in range(count):
            write(tmp_path / name / f"{index}.png", colours(index))
    found = classes(open_images(tmp_path).train)
    assert found is not None
    assert (found.count, found.largest, found.largest_images) == (3, "ant", 3)
    assert (found.smallest, found.smallest_images, found.with_one_image) == ("bee", 1, ("bee",))


def test_speed_is_pictures_over_seconds_of_those_that_were_timed() -> None:
    timed = [look(speed=Speed(0.5, 0.1)), look(speed=Speed(1.5, 0.1)), look()]
    found = decode_speed(timed)
    assert (found.timed, found.full_per_second, found.small_per_second) == (2, 1.0, 10.0)
