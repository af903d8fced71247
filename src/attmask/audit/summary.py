"""Statistics of many pictures: sizes, formats, classes, pixel values, decoding speed."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from attmask.audit.facts import Looks
from attmask.data.source import Source

_NEARLY_ALL = 0.99


@dataclass(frozen=True)
class Spread:
    """Minimum, three quantiles and maximum."""

    min: float
    q05: float
    median: float
    q95: float
    max: float


@dataclass(frozen=True)
class Sizes:
    """Pixels of the pictures, upright; aspect is width / height."""

    width: Spread
    height: Spread
    short_side: Spread
    aspect: Spread


@dataclass(frozen=True)
class Kinds:
    """How many pictures are stored in each way; colourless ones may be stored in colour."""

    formats: dict[str, int]
    modes: dict[str, int]
    channels: dict[str, int]
    bits: dict[str, int]
    colourless: int


@dataclass(frozen=True)
class Classes:
    """The classes of the training images and how even they are."""

    count: int
    largest: str
    largest_images: int
    smallest: str
    smallest_images: int
    with_one_image: tuple[str, ...]


@dataclass(frozen=True)
class PixelStatistics:
    """Mean and std of each channel in 0..1, each picture with the same weight."""

    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class DecodeSpeed:
    """Pictures a second on one core, by CPU time: all pixels, and shrunk while decoding."""

    full_per_second: float
    small_per_second: float
    timed: int


def spread(values: Sequence[float | int]) -> Spread:
    """The spread of at least one value."""
    return Spread(*np.quantile(np.asarray(values, dtype=float), [0, 0.05, 0.5, 0.95, 1]).tolist())


def sizes(looks: Sequence[Looks]) -> Sizes:
    """How large the pictures are."""
    return Sizes(
        width=spread([look.width for look in looks]),
        height=spread([look.height for look in looks]),
        short_side=spread([min(look.width, look.height) for look in looks]),
        aspect=spread([look.width / look.height for look in looks]),
    )


def kinds(looks: Sequence[Looks]) -> Kinds:
    """How the pictures are stored."""
    return Kinds(
        formats=_counted(look.stored.format for look in looks),
        modes=_counted(look.stored.mode for look in looks),
        channels=_counted(str(look.stored.channels) for look in looks),
        bits=_counted(str(look.stored.bits) for look in looks),
        colourless=sum(look.colourless for look in looks),
    )


def _counted(values: Iterable[str]) -> dict[str, int]:
    """The most frequent first."""
    return dict(Counter(values).most_common())


def classes(source: Source) -> Classes | None:
    """The classes of all images of a source, by their number; none without labels."""
    if source.labels is None:
        return None
    counts = np.bincount(source.labels, minlength=len(source.classes))
    largest, smallest = int(counts.argmax()), int(counts.argmin())
    return Classes(
        count=len(counts),
        largest=source.classes[largest],
        largest_images=int(counts[largest]),
        smallest=source.classes[smallest],
        smallest_images=int(counts[smallest]),
        with_one_image=tuple(
            source.classes[label] for label in np.flatnonzero(counts == 1).tolist()
        ),
    )


def channels_to_train_on(looks: Sequence[Looks]) -> int:
    """The channels of most pictures; 1 if nearly all are colourless."""
    common = Counter(look.stored.channels for look in looks).most_common(1)[0][0]
    if common not in (1, 3):
        return common
    colourless = sum(look.colourless for look in looks)
    return 1 if colourless >= _NEARLY_ALL * len(looks) else 3


def pixels(looks: Sequence[Looks], channels: int) -> PixelStatistics:
    """Mean and std over the pictures that can be read with this many channels."""
    others = (1, 3) if channels in (1, 3) else ()
    fitting = [look for look in looks if look.stored.channels in (channels, *others)]
    means = np.mean([_as_channels(look.mean, channels) for look in fitting], axis=0)
    squares = np.mean([_as_channels(look.mean_square, channels) for look in fitting], axis=0)
    stds = np.sqrt(np.maximum(squares - means**2, 0))
    return PixelStatistics(channels, tuple(means.tolist()), tuple(stds.tolist()))


def _as_channels(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """One grey value in every channel, or the mean of the colours in each."""
    if len(values) == channels:
        return values
    return (math.fsum(values) / len(values),) * channels


def decode_speed(looks: Sequence[Looks]) -> DecodeSpeed:
    """How fast one core decodes, at full size and shrunk to what the audit looks at."""
    speeds = [look.speed for look in looks if look.speed is not None]
    full = math.fsum(speed.full_seconds for speed in speeds)
    small = math.fsum(speed.small_seconds for speed in speeds)
    return DecodeSpeed(
        full_per_second=len(speeds) / max(full, 1e-9),
        small_per_second=len(speeds) / max(small, 1e-9),
        timed=len(speeds),
    )
