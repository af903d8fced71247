"""The record of an audit.

As JSON its keys are the fields of `Audit` and of what they hold:

    data                   what was inspected
    images                 train, val, test (null without one), examined, all_examined
    skipped                files skipped because of their ending: {ending: files}
    classes                null without labels; count, largest, largest_images, smallest,
                           smallest_images, with_one_image (names)
    sizes                  width, height, short_side, aspect: each min, q05, median, q95, max
    kinds                  formats, modes, channels, bits: {name: pictures}; colourless
    unreadable             [{place, reason}]
    duplicates             exact, near: groups of places; exact_surplus, near_surplus, flat;
                           near_how: how each of a near group but its first differs from that
    leakage                held-out pictures that are in another split: under `val in train`,
                           `test in train`, `test in val` (where there are both) exact and near:
                           [{val, train, how}], the held-out picture first
    pixels                 channels, mean, std (0..1)
    decode                 full_per_second, small_per_second (shrunk), timed (pictures)
    machine                device, cores, workers
    recipe, recipe_reason  the recommendation
    settings               [{setting, value, reason, changes}]
    command                what to type
    timing                 null where it could not be measured; the fields of `Timing`
    warnings               sentences
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from attmask.audit.advice import Advice, Machine
from attmask.audit.duplicates import Duplicates, Leakage
from attmask.audit.summary import Classes, DecodeSpeed, Kinds, PixelStatistics, Sizes


@dataclass(frozen=True)
class Counts:
    """The number of images, and of examined ones."""

    train: int
    val: int | None
    test: int | None
    examined: int
    all_examined: bool

    @property
    def total(self) -> int:
        """Of all splits."""
        return self.train + (self.val or 0) + (self.test or 0)


@dataclass(frozen=True)
class Unreadable:
    """A picture that cannot be read, and why."""

    place: str
    reason: str


@dataclass(frozen=True)
class Timing:
    """Time and memory of some training steps, and the estimates for an epoch and a run."""

    device: str
    precision: str
    batch_size: int
    workers: int
    batches_timed: int
    """Batches that were made with nothing else running."""
    steps_timed: int
    """Steps while the next batches were made, the first step left out where there were more."""
    step_seconds_min: float
    step_seconds_max: float
    """The values differ much if other programs were running."""
    loader_images_per_second: float
    network_images_per_second: float
    images_per_second: float
    """Expected of a run: the slower of the steps with their waiting and of the loader alone."""
    bottleneck: Literal["network", "data"]
    steps_per_epoch: int
    epochs: int
    epoch_seconds: float
    run_seconds: float
    process_bytes: int | None
    """Peak of the training process."""
    workers_bytes: int | None
    """The memory of all workers that is not shared."""
    device_bytes: int | None
    """Peak on the accelerator."""


@dataclass(frozen=True)
class Audit:
    """The results and recommendations of an inspection."""

    data: str
    images: Counts
    skipped: Mapping[str, int]
    classes: Classes | None
    sizes: Sizes
    kinds: Kinds
    unreadable: tuple[Unreadable, ...]
    duplicates: Duplicates
    leakage: Mapping[str, Leakage]
    pixels: PixelStatistics
    decode: DecodeSpeed
    machine: Machine
    recipe: str
    recipe_reason: str
    settings: tuple[Advice, ...]
    command: str
    timing: Timing | None
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the keys that the module documents, ready for JSON."""
        return dataclasses.asdict(self)
