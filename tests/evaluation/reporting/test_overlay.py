"""Objects drawn over an image: in their places, in their colours, inside the picture."""

import numpy as np
import pytest
from PIL import ImageColor

from attmask.data.coco_masks import Rle, encode
from attmask.evaluation.reporting.overlay import (
    Drawn,
    Rectangle,
    colour_of,
    draw_over,
    letters,
    on_colour,
    overlay_size,
    resized_rgb,
    shortened,
)

GREY = np.full((200, 300, 3), 128, np.uint8)
RED = "#ff0000"


def thing(box: Rectangle, label: str, colour: str, rle: Rle | None = None) -> Drawn:
    x1, y1, x2, y2 = map(float, box)
    return Drawn((x1, y1, x2, y2), label, colour, rle)


def changed(drawn: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.any(drawn != GREY, axis=2)
    return found


def drawn(*objects: Drawn, size_wh: tuple[int, int] = (300, 200)) -> np.ndarray:
    return draw_over(GREY, objects, size_wh)


def test_a_box_is_scaled_from_the_image_to_the_picture() -> None:
    found = drawn(thing((300, 300, 600, 450), "", RED), size_wh=(900, 600))
    red = (found == ImageColor.getrgb(RED)).all(axis=2)
    assert red[100, 100:200].all(), "the upper side"
    assert red[100:150, 100].all(), "the left side"
    assert not red[110:140, 110:190].any(), "the inside is empty"
    assert (GREY == 128).all(), "the picture itself is left alone"


def test_a_mask_is_translucent_and_covers_exactly_its_pixels() -> None:
    mask = np.zeros((1, 200, 300), np.uint8)
    mask[0, 100:150, 50:250] = 1
    found = drawn(thing((0, 0, 299, 199), "", RED, encode(mask)[0]))
    inside = found[110:140, 60:240]
    assert (inside == inside[0, 0]).all()
    assert 128 < inside[0, 0, 0] < 255
    assert 0 < inside[0, 0, 1] < 128
    assert not changed(found)[60:99, 10:290].any()


def test_a_small_object_lies_above_a_large_one() -> None:
    masks = np.zeros((2, 200, 300), np.uint8)
    masks[0, 50:150, 50:250] = 1
    masks[1] = 1
    small, large = encode(masks)
    objects = [
        thing((50, 50, 250, 150), "", "#00ff00", small),
        thing((0, 0, 300, 200), "", RED, large),
    ]
    one, other = drawn(*objects), drawn(*reversed(objects))
    assert one[100, 150, 1] > one[100, 150, 0], "green over red"
    assert one[180, 150, 0] > one[180, 150, 1]
    np.testing.assert_array_equal(one[60:140, 60:240], other[60:140, 60:240])


CORNERS: list[Rectangle] = [
    *((0, 0, 5, 5), (295, 0, 300, 5), (0, 195, 5, 200), (295, 195, 300, 200)),
    *((-50, -50, 400, 300), (290, 90, 300, 110)),
]


@pytest.mark.parametrize("box", CORNERS)
def test_the_label_of_an_object_at_the_edge_is_whole(box: Rectangle) -> None:
    middle = drawn(thing((100, 90, 105, 95), "aeroplane 0.99", RED))
    there = drawn(thing(box, "aeroplane 0.99", RED))
    assert letters_in(middle) > 100
    assert letters_in(there) == letters_in(middle)


def test_labels_of_the_same_box_keep_clear_of_each_other() -> None:
    box = (60.0, 50.0, 240.0, 150.0)
    colours = [RED, "#0000ff", "#008000", "#800080"]
    single = {c: areas_of(drawn(thing(box, "aeroplane 0.99", c)), c) for c in colours}
    together = drawn(*(thing(box, "aeroplane 0.99", c) for c in colours))
    for colour in colours[:-1]:  # the line of the last box covers that of the others
        assert areas_of(together, colour) > 0.5 * single[colour]


def letters_in(picture: np.ndarray) -> int:
    """The pixels that white letters make lighter than the red that they stand on."""
    red, green, _ = np.moveaxis(picture, 2, 0)
    return int(((red == 255) & (green > 0)).sum())


def areas_of(picture: np.ndarray, colour: str) -> int:
    return int((picture == ImageColor.getrgb(colour)).all(axis=2).sum())


def test_a_box_without_extent_and_an_empty_mask_are_drawn_without_a_fault() -> None:
    empty = encode(np.zeros((1, 200, 300), np.uint8))[0]
    found = drawn(thing((30, 40, 20, 40), "thing", RED, empty))
    assert changed(found).any()


@pytest.mark.parametrize(
    ("size_wh", "shown_wh"),
    [
        ((32, 16), (512, 256)),
        ((640, 480), (640, 480)),
        ((8192, 64), (2048, 16)),
        ((1, 9000), (1, 2048)),
    ],
)
def test_small_images_are_enlarged_and_very_large_ones_reduced(
    size_wh: tuple[int, int], shown_wh: tuple[int, int]
) -> None:
    assert overlay_size(size_wh) == shown_wh


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
def test_any_channels_become_three(channels: int) -> None:
    pixels = np.zeros((4, 6, channels), np.uint8)
    pixels[..., 0] = 200
    shown = resized_rgb(pixels, (12, 8))
    assert shown.shape == (8, 12, 3)
    assert shown[0, 0].tolist() == ([200, 200, 200] if channels < 3 else [200, 0, 0])


def test_letters_can_be_read_on_every_colour() -> None:
    assert on_colour("#000000") == "white"
    assert on_colour("#ffffff") == "black"
    assert {on_colour(colour_of(number)) for number in range(16)} == {"white", "black"}
    assert colour_of(16) == colour_of(0)


def test_letters_grow_with_the_picture_and_are_never_tiny() -> None:
    heights = [letters((side, 10)).getbbox("A")[3] for side in (10, 300, 2000)]
    assert heights[0] == heights[1] >= 7
    assert heights[2] > 3 * heights[1]


def test_a_long_name_ends_in_dots() -> None:
    assert shortened("cat", 3) == "cat"
    assert shortened("aeroplane", 5) == "aero…"
