"""The settings that trainings of dense prediction have in common."""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import field_validator

from attmask import distributed
from attmask.run_config import batch_problems
from attmask.schedules import LengthConfig
from attmask.settings import setting
from attmask.tuning.config import TunedConfig, TunedOptimConfig

log = logging.getLogger(__name__)


class DenseScheduleConfig(LengthConfig):
    """The length of training and the learning rate, which changes at every step."""

    epochs: int = setting(
        12, "passes over the images; set by itself where steps is set", paper="12 (COCO)", ge=1
    )
    steps: int | None = setting(
        None, "length in steps (null: epochs)", paper="160000 (ADE20K)", ge=1
    )
    lr: float = setting(1e-4, "learning rate for lr_batch images a step", paper="1e-4", gt=0)
    lr_batch: int | None = setting(
        None, "the learning rate is scaled by batch_size / lr_batch (null: not)", paper="null", ge=1
    )
    lr_warmup_steps: int = setting(500, "steps of linear warm-up", paper="500, ADE20K 1500", ge=0)
    lr_warmup_factor: float = setting(
        1e-3, "factor of the learning rate at the first step", paper="1e-3, ADE20K 1e-6", ge=0, le=1
    )
    lr_falls: Literal["linear", "epochs"] = setting(
        "epochs", "how it falls: to 0 in a line, or at some epochs", paper="epochs, ADE20K linear"
    )
    lr_drop_epochs: tuple[int, ...] = setting(
        (9, 11), "epochs, counted from 0, from which on it is lower", paper="[9, 11]"
    )
    lr_drop: float = setting(0.1, "factor at each of these epochs", paper="0.1", gt=0, le=1)
    ema: float | None = setting(
        None,
        "decay of a moving average of the weights, which is evaluated then (null: none)",
        paper="null",
        ge=0,
        lt=1,
    )

    @field_validator("lr_drop_epochs")
    @classmethod
    def _rising(cls, epochs: tuple[int, ...]) -> tuple[int, ...]:
        if list(epochs) != sorted(set(epochs)) or min(epochs, default=0) < 0:
            raise ValueError(f"{list(epochs)} do not rise from 0 on; use e.g. [9, 11]")
        return epochs


class DenseConfig(TunedConfig):
    """What trainings of dense prediction have; each kind adds its own groups."""

    if TYPE_CHECKING:
        schedule: DenseScheduleConfig
        optim: TunedOptimConfig


AnyDense = TypeVar("AnyDense", bound=DenseConfig)


def problems(config: DenseConfig) -> Iterator[str]:
    """What is wrong with settings that do not fit together."""
    yield from batch_problems(config)
    if (problem := config.selection.problem()) is not None:
        yield problem
    if config.train.sharding == "fsdp":
        yield "dense prediction keeps whole networks; set train.sharding=none"
    steps, warmup = config.schedule.steps, config.schedule.lr_warmup_steps
    if steps is not None and warmup > steps:
        yield (
            f"schedule.lr_warmup_steps={warmup} is longer than the training of {steps} steps; use "
            f"at most {steps}"
        )


def in_steps(config: AnyDense, images: int) -> AnyDense:
    """The settings with the number of epochs that a length in steps takes."""
    per_epoch = max(1, images // config.train.batch_size)
    if config.schedule.steps is None:
        _warn_of_long_warmup(config, config.schedule.epochs * per_epoch)
        return config
    epochs = -(-config.schedule.steps // per_epoch)
    schedule = config.schedule.model_copy(update={"epochs": epochs})
    return config.model_copy(update={"schedule": schedule})


def _warn_of_long_warmup(config: DenseConfig, steps: int) -> None:
    warmup = config.schedule.lr_warmup_steps
    if warmup >= steps and distributed.is_main():
        log.warning(
            "the learning rate rises for %d steps, but there are %d in all; lower "
            "schedule.lr_warmup_steps, or train longer",
            warmup,
            steps,
        )
