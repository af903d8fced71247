"""The segments of one image: stored values in a mask, colours over a picture."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor

from attmask.evaluation.reporting.overlay import colour_of
from attmask.evaluation.reporting.plot import PAPER
from attmask.evaluation.reporting.segments import mask_image, segments_over

LABELS = np.array([[0, 1], [2, 1]])


@pytest.mark.parametrize(
    ("values", "mode"), [((0, 7, 255), "P"), ((3, 1, 2), "P"), ((0, 256, 65535), "I;16")]
)
def test_a_mask_stores_the_value_of_each_class(
    tmp_path: Path, values: tuple[int, ...], mode: str
) -> None:
    mask_image(LABELS, values).save(tmp_path / "mask.png")
    with Image.open(tmp_path / "mask.png") as read:
        assert read.mode == mode
        first, second, third = values
        assert np.asarray(read).tolist() == [[first, second], [third, second]]
        if mode == "P":
            shown = np.asarray(read.convert("RGB"))
            assert tuple(shown[1, 0].tolist()) == ImageColor.getrgb(colour_of(2))


def halves(labels: tuple[int, int], names: tuple[str, ...], side: int = 200) -> np.ndarray:
    """A white picture, of which three quarters have the first label."""
    wide = np.full((4, 4), labels[0])
    wide[:, 3] = labels[1]
    return segments_over(np.full((side, side, 3), 255, np.uint8), wide, names)


def test_each_part_is_mixed_with_the_colour_of_its_class() -> None:
    drawn = halves((1, 2), ("a", "b", "c"))
    for column, number in ((0, 1), (149, 1), (150, 2), (199, 2)):
        ink = np.array(ImageColor.getrgb(colour_of(number)))
        np.testing.assert_allclose(drawn[100, column], (255 + ink) / 2, atol=1)


def test_the_legend_names_only_what_is_there_the_largest_first() -> None:
    legend = halves((2, 1), ("a", "b", "c"))[200:]
    assert len(legend)
    places = []
    for number in range(3):
        ink = ImageColor.getrgb(colour_of(number))
        columns = np.flatnonzero((legend == ink).all(axis=2).any(axis=0))
        places.append(int(columns[0]) if len(columns) else None)
    first, second, third = places
    assert first is None
    assert third is not None
    assert second is not None
    assert third < second


@pytest.mark.parametrize("side", [40, 200, 1024])
def test_the_legend_stays_inside_the_picture_and_has_a_bounded_height(side: int) -> None:
    names = tuple(f"a class with a long name {number}" for number in range(40))
    labels = np.arange(40).reshape(5, 8)
    drawn = segments_over(np.zeros((side, side, 3), np.uint8), labels, names)
    legend = drawn[side:]
    assert drawn.shape[1] == side
    assert len(legend) <= max(side // 4, 100)
    paper = np.array(ImageColor.getrgb(PAPER)[:3])
    assert (legend[:, -1] == paper).all() or side == 40, "no letters at the edge"
    assert (legend[-1] == paper).all()
