"""Schedules of learning rate, weight decay, momentum and temperatures."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from pydantic import PositiveFloat

from attmask.metric import Metric
from attmask.settings import Config, setting


class LengthConfig(Config):
    """The length of any training; each kind has its own schedules beside it."""

    if TYPE_CHECKING:
        epochs: int
        lr: float


class ScheduleConfig(LengthConfig):
    """The length of training and the schedules of its hyperparameters."""

    epochs: int = setting(100, "passes over the images", paper="100 or 300", ge=1)
    lr: float = setting(5e-4, "learning rate for 256 images a step", paper="5e-4", gt=0)
    lr_final: float = setting(1e-6, "learning rate at the end", paper="1e-6", ge=0)
    lr_warmup_epochs: float = setting(10, "epochs of linear warm-up from zero", paper="10", ge=0)
    weight_decay: float = setting(0.04, "weight decay at the start", paper="0.04", ge=0)
    weight_decay_final: float = setting(0.4, "weight decay at the end", paper="0.4", ge=0)
    momentum: float = setting(
        0.996, "the teacher's momentum at the start", paper="0.996 (0.99 on 20 %)", ge=0, le=1
    )
    momentum_final: float = setting(1.0, "the teacher's momentum at the end", paper="1", ge=0, le=1)
    cls_temperature: tuple[PositiveFloat, PositiveFloat] = setting(
        (0.04, 0.07), "teacher temperature for [CLS]: from, to", paper="[0.04, 0.07]"
    )
    cls_temperature_warmup_epochs: int = setting(
        30, "epochs until the [CLS] temperature is reached", paper="30", ge=0
    )
    patch_temperature: tuple[PositiveFloat, PositiveFloat] = setting(
        (0.04, 0.07), "teacher temperature for patches: from, to", paper="[0.04, 0.07]"
    )
    patch_temperature_warmup_epochs: int = setting(
        30, "epochs until the patch temperature is reached", paper="30", ge=0
    )
    freeze_last_layer_epochs: int = setting(
        1, "epochs for which the head's last layer is frozen", paper="1", ge=0
    )
    freeze_backbone_epochs: int = setting(
        0, "epochs for which the backbone is frozen and only the heads learn", paper="0", ge=0
    )
    backbone_warmup_epochs: float = setting(
        0, "epochs in which the backbone's learning rate then rises from zero", paper="0", ge=0
    )


@dataclass(frozen=True)
class Now:
    """The values of the schedules of any training at one step; all count from 0."""

    step: int
    epoch: int
    lr: float

    def metrics(self) -> tuple[Metric, ...]:
        """What the log holds of them."""
        return (Metric("schedule.lr", self.lr, "", None, title="learning rate"),)


@dataclass(frozen=True)
class StepSchedule(Now):
    """The values of all schedules of a pre-training at one step."""

    weight_decay: float
    momentum: float
    cls_temperature: float
    patch_temperature: float
    last_layer_frozen: bool
    backbone_rate: float = 1.0
    """The share of the learning rate that the backbone has; at 0 it is frozen."""

    def metrics(self) -> tuple[Metric, ...]:
        """What the log holds of them."""
        return (
            *super().metrics(),
            Metric("schedule.weight_decay", self.weight_decay, "", None, title="weight decay"),
            Metric("schedule.momentum", self.momentum, "", None, title="teacher momentum"),
            Metric(
                "schedule.cls_temperature",
                self.cls_temperature,
                "",
                None,
                title="teacher temperature of [CLS]",
            ),
            Metric(
                "schedule.patch_temperature",
                self.patch_temperature,
                "",
                None,
                title="teacher temperature of patches",
            ),
        )


@dataclass(frozen=True)
class Cosine:
    """Linear warm-up that includes both ends, then half a cosine from start to final."""

    start: float
    final: float
    steps: int
    warmup_steps: int = 0
    warmup_start: float = 0.0

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps:
            rise = self.start - self.warmup_start
            return self.warmup_start + rise * step / max(1, self.warmup_steps - 1)
        # A warm-up that takes all steps is followed by none, but a longer run may ask for it.
        progress = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        return self.final + 0.5 * (self.start - self.final) * (1 + math.cos(math.pi * progress))


@dataclass(frozen=True)
class Ramp:
    """From start to end, both included, in the given number of epochs; then constant."""

    start: float
    end: float
    epochs: int

    def __call__(self, epoch: int) -> float:
        if epoch >= self.epochs:
            return self.end
        return self.start + (self.end - self.start) * epoch / max(1, self.epochs - 1)


AnyNow = TypeVar("AnyNow", bound=Now, covariant=True)


@runtime_checkable
class Timetable(Protocol[AnyNow]):
    """The schedules of any training as functions of the step."""

    steps: int
    steps_per_epoch: int

    def at(self, step: int) -> AnyNow:
        """The values at a step, counted from 0."""
        ...


class Schedules:
    """The schedules of a pre-training as functions of the step."""

    def __init__(self, config: ScheduleConfig, *, steps_per_epoch: int, batch_size: int) -> None:
        self.steps_per_epoch = steps_per_epoch
        self.steps = config.epochs * steps_per_epoch
        warmup = int(config.lr_warmup_epochs * steps_per_epoch)
        self._lr = Cosine(config.lr * batch_size / 256, config.lr_final, self.steps, warmup)
        self._weight_decay = Cosine(config.weight_decay, config.weight_decay_final, self.steps)
        self._momentum = Cosine(config.momentum, config.momentum_final, self.steps)
        cls_epochs = config.cls_temperature_warmup_epochs
        self._cls_temperature = Ramp(*config.cls_temperature, cls_epochs)
        patch_epochs = config.patch_temperature_warmup_epochs
        self._patch_temperature = Ramp(*config.patch_temperature, patch_epochs)
        self._frozen_epochs = config.freeze_last_layer_epochs
        self._backbone_frozen_steps = config.freeze_backbone_epochs * steps_per_epoch
        self._backbone_warmup_steps = int(config.backbone_warmup_epochs * steps_per_epoch)

    def at(self, step: int) -> StepSchedule:
        """The values at a step, counted from 0."""
        epoch = step // self.steps_per_epoch
        return StepSchedule(
            step=step,
            epoch=epoch,
            lr=self._lr(step),
            weight_decay=self._weight_decay(step),
            momentum=self._momentum(step),
            cls_temperature=self._cls_temperature(epoch),
            patch_temperature=self._patch_temperature(epoch),
            last_layer_frozen=epoch < self._frozen_epochs,
            backbone_rate=self._backbone_rate(step),
        )

    def _backbone_rate(self, step: int) -> float:
        """None while the backbone is frozen, then rising to the whole."""
        thawed = step - self._backbone_frozen_steps
        if thawed < 0:
            return 0.0
        return min(1.0, (thawed + 1) / (self._backbone_warmup_steps + 1))


def changes_at(step: int, before: Timetable[Now], after: Timetable[Now]) -> str:
    """How the values of two schedules differ at a step, as text; empty if they do not."""
    old, new = ({m.title: m.value for m in s.at(step).metrics()} for s in (before, after))
    changed = (title for title in old if old[title] != new[title])
    return ", ".join(f"{title} {old[title]:.4g} -> {new[title]:.4g}" for title in changed)
