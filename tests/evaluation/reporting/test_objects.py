"""Pictures of detections: every object is labelled, in the colour of its class."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageColor

from attmask.data.coco import Annotated
from attmask.data.coco_masks import encode
from attmask.errors import UserError
from attmask.evaluation.metrics.detected import Found
from attmask.evaluation.reporting.objects import (
    DetectedExample,
    draw_objects,
    found_objects,
    true_objects,
)
from attmask.evaluation.reporting.overlay import colour_of

NAMES = ("dog", "cat", "a bird with a very long name")
SIZE_WH = (40, 30)


def masks(count: int) -> np.ndarray:
    drawn = np.zeros((count, SIZE_WH[1], SIZE_WH[0]), np.uint8)
    drawn[:, 5:20, 5:25] = 1
    return drawn


def truth() -> Annotated:
    """A dog with a mask, a crowd of cats and a bird that is only a box."""
    return Annotated(
        "image",
        SIZE_WH,
        np.arange(3),
        np.array([[5, 5, 25, 20], [0, 0, 9, 9], [30, 2, 38, 28]], np.float32),
        np.arange(3),
        np.array([False, True, False]),
        np.ones(3, np.float32),
        ([[5.0, 5.0, 25.0, 5.0, 25.0, 20.0, 5.0, 20.0]], [[0.0, 0.0, 9.0, 0.0, 9.0, 9.0]], None),
    )


def found(*scores: float, has_masks: bool = True) -> Found:
    count = len(scores)
    boxes = np.tile(np.array([5, 5, 25, 20], np.float32), (count, 1))
    labels = np.arange(count) % len(NAMES)
    rles = tuple(encode(masks(count))) if has_masks else None
    return Found(boxes, np.array(scores, np.float32), labels, rles)


def example(found: Found, size_wh: tuple[int, int] = SIZE_WH, channels: int = 3) -> DetectedExample:
    pixels = np.full((size_wh[1], size_wh[0], channels), 90, np.uint8)
    return DetectedExample("a/b_$x$.png", pixels, truth(), found, 12.5)


def test_sure_detections_have_their_class_score_colour_and_mask() -> None:
    seen = found(0.9, 0.5, 0.4999)
    one, other = found_objects(seen, NAMES)
    assert one.box == (5.0, 5.0, 25.0, 20.0)
    assert (one.label, one.colour) == ("dog 0.90", colour_of(0))
    assert one.rle == encode(masks(1))[0]
    assert other.label == "cat 0.50"
    (_, _, last) = found_objects(seen, NAMES, 0.1)
    assert last.label == "a bird with a very lo… 0.50"
    assert [each.rle for each in found_objects(found(0.9, has_masks=False), NAMES)] == [None]


def test_true_objects_say_what_a_crowd_is_and_what_has_no_mask() -> None:
    dog, crowd, bird = true_objects(truth(), NAMES)
    assert [each.label for each in (dog, crowd, bird)] == ["dog", "cat (crowd)", NAMES[2]]
    assert dog.rle == encode(masks(1))[0]
    assert crowd.rle is not None
    assert bird.rle is None


def colours_in(file: Path) -> set[str]:
    pixels = np.asarray(Image.open(file).convert("RGB")).reshape(-1, 3)
    return {"#" + bytes(pixel.tolist()).hex() for pixel in np.unique(pixels, axis=0)}


def test_the_picture_has_the_boxes_of_truth_and_detections(tmp_path: Path) -> None:
    file = draw_objects([example(found(0.9))], NAMES, tmp_path / "x.png", title="network")
    picture = np.asarray(Image.open(file).convert("RGB")).astype(int)
    left, right = np.split(picture[:, : picture.shape[1] // 2 * 2], 2, axis=1)
    for half, shown in ((left, [0, 1, 2]), (right, [0])):
        for number in range(3):
            ink = np.array(ImageColor.getrgb(colour_of(number)))
            there = (abs(half - ink).max(axis=2) < 12).sum() > 20
            assert there == (number in shown), (number, shown)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size_wh", [(40, 30), (20, 400), (400, 20)])
def test_any_shape_and_any_channels_are_drawn_with_a_bounded_size(
    tmp_path: Path, size_wh: tuple[int, int], channels: int
) -> None:
    shown = [example(found(), size_wh, channels), example(found(0.9, 0.8), size_wh, channels)]
    file = draw_objects(shown, NAMES, tmp_path / "x.png", title="network " * 20)
    with Image.open(file) as picture:
        assert picture.width < 1300
        assert picture.height < 2 * 800


def test_nothing_to_draw_and_no_place_to_write_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no images to draw"):
        draw_objects([], NAMES, tmp_path / "x.png", title="network")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the picture"):
        draw_objects([example(found())], NAMES, tmp_path / "file" / "x.png", title="network")
