"""Decode a stored picture to pixels, or raise an error that names the picture."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError

from attmask.data.config import DataConfig
from attmask.data.pictures.depth import UnfitError
from attmask.data.pictures.picture import Picture, Target, picture_of
from attmask.data.source import Source
from attmask.data.subset import evenly_spaced
from attmask.errors import UserError
from attmask.randomness import uniform

_TRIES = 16


class UnreadableImageError(UserError):
    """A picture that cannot be read: its path and the reason."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = one_line(place), one_line(reason)
        super().__init__(f"cannot read {self.place}: {self.reason}")

    @property
    def line(self) -> str:
        """Place, tab, reason: a line of the list of unreadable pictures."""
        return f"{self.place}\t{self.reason}"

    def __reduce__(self) -> tuple[type["UnreadableImageError"], tuple[str, str]]:
        return type(self), (self.place, self.reason)


def open_picture(source: Source, index: int, config: DataConfig) -> Picture:
    """Read a picture and its header; every error, now or in decoding, names the picture."""
    place = source.place(index)
    target = Target(config.channels, config.bits, config.max_megapixels)
    with _named(place):
        picture = picture_of(_read(source, index), target)
    return replace(picture, read=partial(_read_named, picture, place))


def decode_picture(
    raw: bytes | np.ndarray | Image.Image, place: str, config: DataConfig
) -> UInt8[np.ndarray, "H W C"]:
    """All pixels of a picture without a source, the same as from `decode`; errors name `place`."""
    target = Target(config.channels, config.bits, config.max_megapixels)
    with _named(place):
        return picture_of(raw, target).pixels()


def decode(source: Source, index: int, config: DataConfig) -> UInt8[np.ndarray, "H W C"]:
    """All pixels of a picture, upright, in 8 bits and in the channels asked for."""
    return open_picture(source, index, config).pixels()


def check_readable(source: Source, config: DataConfig) -> None:
    """Raise an error if none of up to 16 evenly spaced images can be read."""
    count = min(_TRIES, len(source))
    faults = []
    for probe in evenly_spaced(len(source), count).tolist():
        try:
            decode(source, probe, config)
            return
        except UnreadableImageError as fault:
            faults.append(fault)
    raise UserError(
        f"no readable image in {source.root}: tried {count} of {len(source)}, "
        f"the first: {faults[0]}; check that these files are pictures"
    )


def replacement(index: int, attempt: int, images: int, seed: int) -> int:
    """Which of `images` pictures takes the place of unreadable picture `index`, for attempt
    0, 1, ...; never the picture itself, unless it is alone."""
    if images == 1:
        return index
    chance = float(uniform("replacement of an unreadable image", seed, index, attempt))
    return (index + 1 + int(chance * (images - 1))) % images


def _read_named(picture: Picture, place: str, shrink: int) -> UInt8[np.ndarray, "H W C"]:
    with _named(place):
        return picture.pixels(shrink)


def _read(source: Source, index: int) -> bytes | np.ndarray:
    try:
        return source.read(index)
    except OSError as fault:
        raise UnfitError(fault.strerror or str(fault) or "it cannot be read") from fault


@contextmanager
def _named(place: str) -> Iterator[None]:
    try:
        yield
    except UnreadableImageError:
        raise
    except Exception as fault:  # a broken file can make a decoder raise nearly anything
        raise UnreadableImageError(place, _reason(fault)) from fault


def _reason(fault: Exception) -> str:
    """Why a picture could not be read, in a few words that do not repeat its name."""
    if isinstance(fault, UnidentifiedImageError):
        return "not a picture in a known format"
    if isinstance(fault, UnfitError):
        return str(fault)
    if isinstance(fault, MemoryError):
        return "not enough memory for it"
    # What decoders say of their own inside is of no use to others, but for one thing.
    return "the file ends too early" if "runcated" in str(fault) else "the file is damaged"


def one_line(text: str) -> str:
    """Escape line breaks and other characters that do not print."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
