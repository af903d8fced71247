from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.evaluation.reporting.masks import COLOURS, SegmentedExample, draw_masks


def example(classes: int, channels: int = 3) -> SegmentedExample:
    truth = (np.arange(30 * 40) * classes // (30 * 40)).reshape(30, 40)
    truth[0] = -1
    pixels = np.full((30, 40, channels), 90, np.uint8)
    return SegmentedExample("a/b_$x$.png", pixels, truth, truth[::-1].clip(0), 12.5)


def colours_in(file: Path) -> set[str]:
    pixels = np.asarray(Image.open(file).convert("RGB")).reshape(-1, 3)
    return {"#" + bytes(pixel.tolist()).hex() for pixel in np.unique(pixels, axis=0)}


def test_every_class_that_occurs_has_its_colour(tmp_path: Path) -> None:
    names = [f"class {number}" for number in range(5)]
    file = draw_masks([example(3)], names, tmp_path / "x.png", title="network")
    shown = colours_in(file)
    assert set(COLOURS[:3]) <= shown
    assert not set(COLOURS[3:5]) & shown, "these do not occur"


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_many_classes_and_any_channels_are_drawn(tmp_path: Path, channels: int) -> None:
    names = [f"class {number}" for number in range(150)]
    file = draw_masks([example(40, channels)] * 2, names, tmp_path / "x.png", title="network")
    assert set(COLOURS) <= colours_in(file)


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no images to draw"):
        draw_masks([], ["a"], tmp_path / "x.png", title="network")
