"""The segments of one image: as a mask file, and in colours over the image with a legend."""

from collections.abc import Sequence

import cv2
import numpy as np
from jaxtyping import Int, UInt8
from PIL import Image, ImageColor, ImageDraw

from attmask.evaluation.reporting.overlay import colour_of, letters, shortened
from attmask.evaluation.reporting.plot import INK, PAPER

_OPACITY = 0.5
_LONGEST = 24  # characters of a class
_MOST_LINES = 4  # of the legend
_BYTE = 255


def mask_image(labels: Int[np.ndarray, "H W"], values: Sequence[int]) -> Image.Image:
    """A mask that stores the value of each class, in the colours of the classes.

    Values beyond 255 need 16 bits, for which there are no colours.
    """
    stored = np.asarray(values)[labels]
    if max(values) > _BYTE:
        return Image.fromarray(stored.astype(np.uint16))
    image = Image.fromarray(stored.astype(np.uint8)).convert("L")
    palette = np.zeros((_BYTE + 1, 3), dtype=np.uint8)
    for number, value in enumerate(values):
        palette[value] = ImageColor.getrgb(colour_of(number))
    image.putpalette(palette.tobytes())
    return image


def segments_over(
    picture: UInt8[np.ndarray, "h w 3"], labels: Int[np.ndarray, "H W"], names: Sequence[str]
) -> UInt8[np.ndarray, "height w 3"]:
    """A picture in the colours of its classes, with their names below it, the largest first."""
    height, width = picture.shape[:2]
    colours = np.array([ImageColor.getrgb(colour_of(number)) for number in range(len(names))])
    # Every label is exact in float32, and nearest neighbours do not mix them.
    small = cv2.resize(labels.astype(np.float32), (width, height), interpolation=cv2.INTER_NEAREST)
    mixed = picture * (1 - _OPACITY) + colours[small.astype(np.int64)] * _OPACITY
    pixels = np.bincount(labels.ravel(), minlength=len(names))
    there = [number for number in np.argsort(-pixels, kind="stable").tolist() if pixels[number]]
    drawn = mixed.round().astype(np.uint8)
    return np.concatenate(
        [drawn, _legend([(names[n], colour_of(n)) for n in there], width, height)]
    )


def _legend(
    named: Sequence[tuple[str, str]], width: int, height: int
) -> UInt8[np.ndarray, "_ w 3"]:
    font = letters((width, height))
    measure = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    high = round(measure.textbbox((0, 0), "Ag", font=font)[3] * 1.6)
    box = high // 2
    places: list[tuple[int, int]] = []
    x, line = box, 0
    for name, _ in named:
        wide = round(measure.textlength(shortened(name, _LONGEST), font=font)) + 3 * box
        if x + wide > width and x > box:
            x, line = box, line + 1
        if line == _MOST_LINES:
            break
        places.append((x, line))
        x += wide
    lines = min(line + 1, _MOST_LINES)
    strip = Image.new("RGB", (width, lines * high + box), PAPER)
    draw = ImageDraw.Draw(strip)
    for (name, colour), (left, row) in zip(named, places, strict=False):
        middle = box // 2 + row * high + high // 2
        draw.rectangle((left, middle - box // 2, left + box, middle + box // 2), fill=colour)
        text = shortened(name, _LONGEST)
        draw.text((left + round(1.5 * box), middle), text, fill=INK, font=font, anchor="lm")
    return np.array(strip)
