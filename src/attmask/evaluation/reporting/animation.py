"""Animated pictures of masks on the frames of a video."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from attmask import atomic
from attmask.errors import UserError

_LONGER_SIDE = 480  # pixels
_MILLISECONDS = 100  # a frame
_QUALITY = 60
_OPACITY = 0.55
_OUTLINE, _INK, _PAPER = (255, 255, 255), (250, 250, 248), (40, 40, 44)
_LETTERS = 14  # pixels
# Colour-blind safe; the first is the rose of the attention maps.
_COLOURS = ((211, 39, 91), (86, 180, 233), (230, 159, 0), (0, 158, 115), (240, 228, 66))


def overlay(
    frame: UInt8[np.ndarray, "H W 3"],
    predicted: UInt8[np.ndarray, "H W"],
    truth: UInt8[np.ndarray, "H W"],
    caption: str,
) -> Image.Image:
    """A frame with its predicted objects in colour, the true ones outlined, and a line of text."""
    scale = min(1.0, _LONGER_SIDE / max(frame.shape[:2]))
    size_wh = (max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale)))
    photo = np.array(Image.fromarray(frame).resize(size_wh, Image.Resampling.BILINEAR))
    shown, true = (
        np.array(Image.fromarray(mask).resize(size_wh, Image.Resampling.NEAREST))
        for mask in (predicted, truth)
    )
    for number in range(1, int(max(shown.max(), true.max())) + 1):
        colour = np.array(_COLOURS[(number - 1) % len(_COLOURS)])
        here = shown == number
        photo[here] = (1 - _OPACITY) * photo[here] + _OPACITY * colour
    for number in range(1, int(true.max()) + 1):
        contours, _ = cv2.findContours(
            (true == number).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE
        )
        cv2.drawContours(photo, contours, -1, _OUTLINE, 1)
    return _captioned(Image.fromarray(photo), caption)


def _captioned(photo: Image.Image, caption: str) -> Image.Image:
    """The photo above a strip with the text."""
    sheet = Image.new("RGB", (photo.width, photo.height + _LETTERS + 8), _PAPER)
    sheet.paste(photo)
    font = ImageFont.load_default(_LETTERS)
    place = (8, photo.height + (_LETTERS + 8) / 2)
    ImageDraw.Draw(sheet).text(place, caption, fill=_INK, font=font, anchor="lm")
    return sheet


def write_animation(
    pictures: Iterable[Image.Image], file: Path, *, milliseconds: int = _MILLISECONDS
) -> Path:
    """Write an animated WebP atomically, without an end; a frame is shown for `milliseconds`."""
    first, *others = pictures
    _write(first, others, file, milliseconds)
    return file


def _write(
    first: Image.Image, others: Sequence[Image.Image], file: Path, milliseconds: int
) -> None:
    try:
        with atomic.file(file) as part:
            first.save(
                part,
                format="WEBP",
                save_all=True,
                append_images=others,
                duration=milliseconds,
                loop=0,
                quality=_QUALITY,
            )
    except OSError as fault:
        raise UserError(
            f"cannot write the animation {file}: {fault.strerror or fault}; make room, or choose "
            "another folder with --cache"
        ) from fault
