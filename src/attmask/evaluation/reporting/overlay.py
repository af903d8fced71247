"""Objects drawn over an image: boxes, translucent masks, and labels that keep clear of each other.

Letters and lines are sized by the picture, so it looks the same in every size.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageColor, ImageDraw, ImageFont

from attmask.data.coco_masks import Rle, decode
from attmask.evaluation.reporting.masks import COLOURS

Rectangle = tuple[float, float, float, float]
"""x1 y1 x2 y2 in pixels."""

_OPACITY = 0.45
_LETTERS = 1 / 42  # of the longer side
_LEAST_LETTERS = 10  # pixels
_LINE = 1 / 300
_LONGEST = 28  # characters of a label
_LEAST_SIDE, _MOST_SIDE = 512, 2048  # the longer side of a picture to look at
_DARK = 140  # below it, letters on a colour are white


@dataclass(frozen=True, eq=False)
class Drawn:
    """An object as it is drawn; without a mask it is only a box."""

    box: Rectangle
    """In pixels of the image."""
    label: str
    colour: str
    rle: Rle | None = None


def colour_of(number: int) -> str:
    """The colour of a class, the same in every picture."""
    return COLOURS[number % len(COLOURS)]


def resized_rgb(
    pixels: UInt8[np.ndarray, "H W C"], size_wh: tuple[int, int]
) -> UInt8[np.ndarray, "h w 3"]:
    """Three channels to look at in another size: the first ones, or the first one in grey."""
    shown = pixels[..., :3] if pixels.shape[2] >= 3 else np.repeat(pixels[..., :1], 3, axis=2)
    image = Image.fromarray(np.ascontiguousarray(shown))
    return np.array(image.resize(size_wh, Image.Resampling.BICUBIC, reducing_gap=3.0))


def draw_over(
    picture: UInt8[np.ndarray, "h w 3"], objects: Sequence[Drawn], size_wh: tuple[int, int]
) -> UInt8[np.ndarray, "h w 3"]:
    """A picture with objects of an image of this size over it, large ones below small ones."""
    height, width = picture.shape[:2]
    canvas = picture.copy()
    x, y = width / size_wh[0], height / size_wh[1]
    boxes = [_scaled(each.box, x, y) for each in objects]
    below = sorted(range(len(objects)), key=lambda place: -_area(boxes[place]))
    for place in below:
        if (rle := objects[place].rle) is not None:
            mask = decode([rle], size_wh)[0]
            _blend_(canvas, mask, objects[place].colour)
    image = Image.fromarray(canvas)
    draw = ImageDraw.Draw(image)
    line = max(1, round(max(width, height) * _LINE))
    for place in below:
        draw.rectangle(boxes[place], outline=objects[place].colour, width=line)
    _write_labels(draw, list(zip(boxes, objects, strict=True)), (width, height))
    return np.array(image)


def overlay_size(size_wh: tuple[int, int]) -> tuple[int, int]:
    """The size of a picture to look at: small images are enlarged, very large ones reduced."""
    longer = max(size_wh)
    scale = min(max(longer, _LEAST_SIDE), _MOST_SIDE) / longer
    width, height = (max(1, round(side * scale)) for side in size_wh)
    return width, height


def letters(size_wh: tuple[int, int]) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """The font of a picture of this size."""
    return ImageFont.load_default(max(_LEAST_LETTERS, round(max(size_wh) * _LETTERS)))


def on_colour(colour: str) -> str:
    """Black or white, whichever can be read on a colour."""
    red, green, blue = ImageColor.getrgb(colour)[:3]
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < _DARK else "black"


def shortened(name: str, most: int = _LONGEST) -> str:
    """A name of at most so many characters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _blend_(
    canvas: UInt8[np.ndarray, "h w 3"], mask: UInt8[np.ndarray, "H W"], colour: str
) -> None:
    height, width = canvas.shape[:2]
    covered = cv2.resize(mask * 255, (width, height), interpolation=cv2.INTER_AREA)
    rows, columns = np.flatnonzero(covered.any(axis=1)), np.flatnonzero(covered.any(axis=0))
    if not len(rows):
        return
    part = slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)
    share = covered[part][..., None] * np.float32(_OPACITY / 255)
    ink = np.array(ImageColor.getrgb(colour)[:3], dtype=np.float32)
    canvas[part] = (canvas[part] * (1 - share) + ink * share + 0.5).astype(np.uint8)


def _write_labels(
    draw: ImageDraw.ImageDraw, objects: Sequence[tuple[Rectangle, Drawn]], size_wh: tuple[int, int]
) -> None:
    """Each label in the first free place at its box, or where it covers the least of others."""
    font = letters(size_wh)
    taken: list[Rectangle] = []
    for box, each in objects:
        text = shortened(each.label)
        left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
        pad = max(1, round((bottom - top) * 0.2))
        wide, high = float(right - left + 2 * pad), float(bottom - top + 2 * pad)
        places = [_inside(place, size_wh) for place in _places(box, wide, high)]
        covered = [sum(_overlap(place, other) for other in taken) for place in places]
        best = places[int(np.argmin(covered))]
        taken.append(best)
        draw.rectangle(best, fill=each.colour)
        draw.text(
            (best[0] + pad - left, best[1] + pad - top),
            text,
            fill=on_colour(each.colour),
            font=font,
        )


def _places(box: Rectangle, wide: float, high: float) -> Iterator[Rectangle]:
    """Where a label may stand: above the box, in its corners, below it, then down its sides."""
    x1, y1, x2, y2 = box
    corners = [
        *((x1, y1 - high), (x1, y1), (x1, y2 - high), (x1, y2)),
        *((x2 - wide, y1 - high), (x2 - wide, y1), (x2 - wide, y2 - high), (x2 - wide, y2)),
    ]
    rows = max(0, min(24, int((y2 - y1) / high) - 1))
    corners += [(x, y1 + high * (row + 1)) for row in range(rows) for x in (x1, x2 - wide)]
    for left, top in corners:
        yield left, top, left + wide, top + high


def _inside(place: Rectangle, size_wh: tuple[int, int]) -> Rectangle:
    """The same rectangle, moved into the picture and to whole pixels, which keep letters sharp."""
    x1, y1, x2, y2 = place
    left = float(max(0, min(round(x1), size_wh[0] - round(x2 - x1))))
    top = float(max(0, min(round(y1), size_wh[1] - round(y2 - y1))))
    return left, top, left + x2 - x1, top + y2 - y1


def _overlap(one: Rectangle, other: Rectangle) -> float:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(0.0, wide) * max(0.0, high)


def _scaled(box: Rectangle, x: float, y: float) -> Rectangle:
    x1, y1, x2, y2 = box
    # A line that ends left of where it starts cannot be drawn.
    return x1 * x, y1 * y, max(x2, x1) * x, max(y2, y1) * y


def _area(box: Rectangle) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])
