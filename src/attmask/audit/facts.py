"""Examine one picture in a worker process: read it once, decode it small, measure it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import UInt8

from attmask.audit.fingerprint import SIDE, digest, perceptual_hashes, thumbnail
from attmask.data.config import DataConfig
from attmask.data.decode import UnreadableImageError, open_picture
from attmask.data.pictures.picture import Picture
from attmask.data.pictures.stored import StoredFormat, stored_format
from attmask.data.source import Raw, Source, everything

SMALL_SIDE = 128
"""The short side at which larger pictures are examined."""

_COLOURLESS = 1.0  # mean difference of the channels, in levels of 255


@dataclass(frozen=True)
class Speed:
    """CPU seconds from bytes to all pixels, and to no more than about `SMALL_SIDE` pixels."""

    full_seconds: float
    small_seconds: float


@dataclass(frozen=True)
class Looks:
    """Measurements of a readable picture."""

    stored: StoredFormat
    width: int
    height: int
    hash: int | None
    """None if the picture has too little structure."""
    mean: tuple[float, ...]
    mean_square: tuple[float, ...]
    """Of each channel, in 0..1."""
    colourless: bool
    speed: Speed | None = None
    """Where it was measured."""
    flipped_hash: int | None = None
    """The hash of the flipped picture; None where there is no thumbnail to confirm it."""
    thumbnail: bytes | None = None
    """32 x 32 grey values; None where the picture is smaller or too flat."""


@dataclass(frozen=True)
class PictureFacts:
    """The facts of one picture; if it cannot be read, `fault` is the reason and `looks` is None."""

    place: str
    digest: bytes | None = None
    fault: str | None = None
    looks: Looks | None = None


@dataclass(frozen=True)
class _Held:
    """One picture that was read already, as a store: no file is read twice."""

    called: str
    raw: Raw

    def __len__(self) -> int:
        return 1

    def name(self, row: int) -> str:
        """The name in the original store."""
        return self.called

    def read(self, row: int) -> Raw:
        """What was read."""
        return self.raw

    @property
    def shards(self) -> Sequence[int]:
        """None."""
        return ()


def examine(source: Source, index: int, config: DataConfig, *, timed: bool = False) -> PictureFacts:
    """Everything about one picture; `timed` also measures how fast it is decoded."""
    place = source.place(index)
    try:
        raw = source.read(index)
    except (OSError, ValueError) as fault:  # of a name that no file can have, the latter
        return PictureFacts(place, fault=getattr(fault, "strerror", None) or str(fault))
    mark = digest(raw)
    held = everything(source.root, _Held(source.name(index), raw))
    try:
        return PictureFacts(place, mark, looks=_look(held, raw, config, timed))
    except UnreadableImageError as fault:
        return PictureFacts(place, mark, fault=fault.reason)


def _look(held: Source, raw: Raw, config: DataConfig, timed: bool) -> Looks:
    open_picture(held, 0, config)  # refuses what has no good header
    kind = stored_format(raw)
    as_stored = config.model_copy(update={"channels": kind.channels})
    picture = open_picture(held, 0, as_stored)
    shrink = _shrink(picture)
    pixels = picture.pixels(shrink)
    small = _small(pixels)
    tiny = thumbnail(_grey(small))
    hashes = perceptual_hashes(tiny)
    comparable = hashes is not None and min(small.shape[:2]) >= SIDE
    means, stds = (values.ravel() / 255 for values in cv2.meanStdDev(small))
    return Looks(
        stored=kind,
        width=picture.size_wh[0],
        height=picture.size_wh[1],
        hash=hashes[0] if hashes else None,
        mean=tuple(means.tolist()),
        mean_square=tuple((means**2 + stds**2).tolist()),
        colourless=_is_colourless(small),
        # After it was decoded once: the first time pays for what comes into the caches.
        speed=_speed(held, as_stored, shrink) if timed else None,
        flipped_hash=hashes[1] if hashes and comparable else None,
        thumbnail=tiny.tobytes() if comparable else None,
    )


def _speed(held: Source, config: DataConfig, shrink: int) -> Speed:
    moments = [time.thread_time()]
    for by in (1, shrink):
        open_picture(held, 0, config).pixels(by)
        moments.append(time.thread_time())
    return Speed(full_seconds=moments[1] - moments[0], small_seconds=moments[2] - moments[1])


def _shrink(picture: Picture) -> int:
    """The greatest that leaves the short side at `SMALL_SIDE` or more."""
    short = min(picture.size_wh)
    return max((by for by in picture.shrinks if short // by >= SMALL_SIDE), default=1)


def _small(pixels: UInt8[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "h w C"]:
    """Averaged down: what cannot be shrunk while decoding is then like what can."""
    height, width, channels = pixels.shape
    scale = SMALL_SIDE / min(height, width)
    if scale >= 1:
        return pixels
    size = max(1, round(width * scale)), max(1, round(height * scale))
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8).reshape(size[1], size[0], channels)


def _grey(pixels: UInt8[np.ndarray, "h w C"]) -> UInt8[np.ndarray, "h w"]:
    if pixels.shape[2] == 3:
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), dtype=np.uint8)
    return np.asarray(pixels.mean(axis=2).round(), dtype=np.uint8)


def _is_colourless(pixels: UInt8[np.ndarray, "h w C"]) -> bool:
    """Whether the pixels are grey, stored as colours or not."""
    channels = int(pixels.shape[2])
    if channels != 3:
        return channels == 1
    red, green, blue = cv2.split(pixels)
    greatest, least = cv2.max(cv2.max(red, green), blue), cv2.min(cv2.min(red, green), blue)
    difference = float(cv2.mean(cv2.subtract(greatest, least))[0])
    return difference < _COLOURLESS
