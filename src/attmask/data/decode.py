"""From a file to pixels: upright, in the channels asked for, or an error that names the file."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from attmask.data.sources import Source
from attmask.errors import UserError

_MODES = {1: "L", 3: "RGB"}
_TRIES = 16


class UnreadableImageError(UserError):
    """An image file that could not be read."""


def decode(path: Path, channels: int) -> Image.Image:
    """Read a picture fully, turned as its EXIF orientation says, in mode RGB (3) or L (1)."""
    if channels not in _MODES:
        raise UserError(f"images with {channels} channels are not supported; use 3 or 1")
    try:
        with Image.open(path) as file:
            ImageOps.exif_transpose(file, in_place=True)
            if file.mode.startswith("I;16"):
                # Pillow would clip 16-bit values at 255: nearly everything white.
                high_byte = (np.asarray(file) >> 8).astype(np.uint8)
                return Image.fromarray(high_byte).convert(_MODES[channels])
            return file.convert(_MODES[channels])
    except Exception as fault:  # a broken file can make a decoder raise nearly anything
        raise UnreadableImageError(f"cannot read {path}: {_reason(fault)}") from fault


def _reason(fault: Exception) -> str:
    """Why a file could not be read, in a few words that do not repeat its name."""
    if isinstance(fault, UnidentifiedImageError):
        return "not a picture in a known format"
    if isinstance(fault, OSError) and fault.strerror:
        return fault.strerror
    return str(fault) or type(fault).__name__


def decode_or_next(
    source: Source, index: int, channels: int
) -> tuple[Image.Image, int, tuple[UnreadableImageError, ...]]:
    """Image `index` or the next readable one after it, its index, and what was passed over.

    The search is in file order, so that a broken file is always replaced by the same image.
    """
    faults: list[UnreadableImageError] = []
    for step in range(min(_TRIES, len(source))):
        candidate = (index + step) % len(source)
        try:
            return decode(source.path(candidate), channels), candidate, tuple(faults)
        except UnreadableImageError as fault:
            faults.append(fault)
    raise UserError(
        f"{len(faults)} images in a row could not be read, the first: {faults[0]}; "
        f"mend the files, or replace them under the same names"
    )


def check_readable(source: Source, channels: int) -> None:
    """Refuse a source of which none of up to 16 images, evenly spaced, can be read."""
    count = min(_TRIES, len(source))
    probes = (source.path(probe * len(source) // count) for probe in range(count))
    faults = []
    for path in probes:
        fault = _fault(path, channels)
        if fault is None:
            return
        faults.append(fault)
    raise UserError(
        f"no readable image in {source.root}: tried {count} of {len(source)}, "
        f"the first: {faults[0]}; check that these files are pictures"
    )


def _fault(path: Path, channels: int) -> UnreadableImageError | None:
    try:
        decode(path, channels)
    except UnreadableImageError as fault:
        return fault
    return None
