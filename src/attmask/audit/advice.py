"""Recommended settings with reasons, and the command that uses them."""

import json
import math
import shlex
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from attmask.audit.summary import PixelStatistics
from attmask.config import PretrainConfig
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.wording import agree, counted

LARGE_SET = 100_000
"""The number of images from which on the paper's recipe is recommended."""

_LEAST_STEPS = 3000  # of a whole run; with fewer even small networks hardly move
_LEAST_STEPS_AN_EPOCH = 4
_LEAST_PATCHES = 6  # a side: fewer leave too little to hide
_FAR_MEAN = 0.1
_FAR_STD = 1.4  # as a ratio, either way


@dataclass(frozen=True)
class Findings:
    """What the recommendation depends on, of the images."""

    images: int
    short_side: int
    """Median, in pixels."""
    pixels: PixelStatistics
    class_sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Machine:
    """What the recommendation depends on, of the machine."""

    device: str
    cores: int
    workers: int


@dataclass(frozen=True)
class Advice:
    """One setting, the reason, and whether it differs from the recipe."""

    setting: str
    value: str
    reason: str
    changes: bool


@dataclass(frozen=True)
class Plan:
    """A recipe with changes: a config that runs."""

    recipe: str
    reason: str
    settings: tuple[Advice, ...]
    config: PretrainConfig

    def command(self, data: str) -> str:
        """The command to run."""
        words = ["attmask", "pretrain", data, "--recipe", self.recipe]
        words += [f"{line.setting}={line.value}" for line in self.settings if line.changes]
        return shlex.join(words)


@dataclass(frozen=True)
class _Choice:
    """A value for a setting and the reason; several settings may hang together."""

    values: dict[str, Any]
    reason: str


def plan(found: Findings, machine: Machine, recipe: str | None = None) -> Plan:
    """Choose a recipe, unless one is given, and adapt it to the images."""
    name, reason = _recipe(found, machine) if recipe is None else (recipe, "as asked")
    base = load_recipe(name)
    config, settings = base, []
    for choose in (_channels, _scaling, _image_size, _batch, _epochs):
        choice = choose(found, config)
        texts = {key: json.dumps(value) for key, value in choice.values.items()}
        config = override(config, [f"{key}={text}" for key, text in texts.items()])
        settings += [
            Advice(key, text, choice.reason, attrgetter(key)(config) != attrgetter(key)(base))
            for key, text in texts.items()
        ]
    settings.append(_workers(machine, config))
    return Plan(name, reason, tuple(settings), config)


def images_used(found: Findings, config: PretrainConfig) -> int:
    """The number of images that remain with a recipe's per_class or percent."""
    most, percent = config.data.per_class, config.data.percent
    if percent is not None:
        sizes = found.class_sizes or (found.images,)
        return sum(max(1, round(size * percent / 100)) for size in sizes)
    if most is not None and found.class_sizes:
        return sum(min(most, size) for size in found.class_sizes)
    return found.images


def _recipe(found: Findings, machine: Machine) -> tuple[str, str]:
    if machine.device == "cpu":
        return "cpu", "no accelerator here: a small network, which a CPU can train"
    if found.images >= LARGE_SET:
        return (
            "ibot-high-in1k-100ep",
            f"{found.images:,} images are enough for the paper's network and schedule",
        )
    return "small", f"ViT-S/16 with a head and schedule for {counted(found.images, 'image')}"


def _channels(found: Findings, config: PretrainConfig) -> _Choice:
    channels = found.pixels.channels
    reason = {
        1: "the pictures have no colours",
        3: "the pictures have colours",
    }.get(channels, f"most pictures have {channels} channels")
    return _Choice({"data.channels": channels}, reason)


def _scaling(found: Findings, config: PretrainConfig) -> _Choice:
    """Mean and std: the recipe's, unless the pictures are far from them."""
    count = found.pixels.channels
    wanted = zip(found.pixels.mean, _each(config.data.mean, count), strict=True)
    off = max(abs(ours - theirs) for ours, theirs in wanted)
    ratios = zip(found.pixels.std, _each(config.data.std, count), strict=True)
    factor = max(abs(math.log(max(ours, 1e-3) / theirs)) for ours, theirs in ratios)
    if off <= _FAR_MEAN and factor <= math.log(_FAR_STD):
        values = {"data.mean": list(config.data.mean), "data.std": list(config.data.std)}
        return _Choice(values, "the pictures are near enough to these")
    return _Choice(
        _measured(found.pixels),
        f"measured; means are up to {off:.2f} off the recipe's, stds by a factor "
        f"of up to {math.exp(factor):.1f}",
    )


def _measured(pixels: PixelStatistics) -> dict[str, Any]:
    return {
        "data.mean": [round(value, 3) for value in pixels.mean],
        "data.std": [max(0.001, round(value, 3)) for value in pixels.std],
    }


def _image_size(found: Findings, config: PretrainConfig) -> _Choice:
    """Crops no larger than the pictures, with enough patches to hide some."""
    patch, wanted, local = config.backbone.patch, config.views.global_size, config.views.local_size
    short = max(found.short_side, 2 * _LEAST_PATCHES)
    if wanted <= short:
        return _Choice(
            {"views.global_size": wanted},
            f"the recipe's; half of the pictures have {found.short_side} pixels or more on "
            f"their short side",
        )
    while short // patch < _LEAST_PATCHES and patch % 2 == 0:
        patch //= 2
    size = max(1, short // patch) * patch
    smaller = min(max(1, round(local * size / wanted / patch)) * patch, size)
    values = {"views.global_size": size, "views.local_size": smaller}
    if patch != config.backbone.patch:
        values["backbone.patch_size"] = patch
    return _Choice(
        values,
        f"half of the pictures have {found.short_side} pixels or fewer on their short side: "
        f"the recipe's {wanted} would only blow them up",
    )


def _batch(found: Findings, config: PretrainConfig) -> _Choice:
    batch, images = config.train.batch_size, images_used(found, config)
    most = max(1, images // _LEAST_STEPS_AN_EPOCH)
    if batch <= most:
        return _Choice({"train.batch_size": batch}, "the recipe's, which its learning rate fits")
    smaller = 2 ** int(math.log2(most))
    values = {"train.batch_size": smaller}
    if smaller % config.train.accumulate:
        values["train.accumulate"] = math.gcd(smaller, config.train.accumulate)
    return _Choice(
        values,
        f"{counted(images, 'image')} {agree(images, 'is', 'are')} only {images / batch:.1f} of the "
        f"recipe's batches of {batch}",
    )


def _epochs(found: Findings, config: PretrainConfig) -> _Choice:
    epochs = config.schedule.epochs
    steps_per_epoch = max(1, images_used(found, config) // config.train.batch_size)
    steps = epochs * steps_per_epoch
    if steps >= _LEAST_STEPS:
        return _Choice({"schedule.epochs": epochs}, f"the recipe's; {counted(steps, 'step')}")
    return _Choice(
        {"schedule.epochs": math.ceil(_LEAST_STEPS / steps_per_epoch)},
        f"{counted(epochs, 'epoch')} would be only {counted(steps, 'step')}; less than "
        f"{_LEAST_STEPS:,} teach little",
    )


def _workers(machine: Machine, config: PretrainConfig) -> Advice:
    """The default number of workers."""
    reason = f"of {counted(machine.cores, 'core')} one is left to training"
    if config.train.workers is not None:
        return Advice("train.workers", str(config.train.workers), "the recipe's", changes=False)
    return Advice("train.workers", str(machine.workers), reason, changes=False)


def _each(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    return values if len(values) == count else values[:1] * count
