"""The schedules of a fine-tuning: the learning rate, and whether the backbone is trained."""

import math
from dataclasses import dataclass

from attmask.finetuning.config import FinetuneScheduleConfig
from attmask.metric import Metric
from attmask.schedules import Cosine, Now


@dataclass(frozen=True)
class FinetuneNow(Now):
    """The values of the schedules at one step."""

    backbone_frozen: bool = False

    def metrics(self) -> tuple[Metric, ...]:
        """What the log holds of them."""
        frozen = float(self.backbone_frozen)
        return (
            *super().metrics(),
            Metric("schedule.backbone_frozen", frozen, "", None, title="backbone frozen"),
        )


@dataclass(frozen=True)
class EpochCosine:
    """Half a cosine that changes once an epoch and is counted from the first epoch, of which the
    warm-up takes the first ones: the schedule of timm and DeiT."""

    start: float
    final: float
    epochs: int
    warmup_epochs: float
    warmup_start: float

    def __call__(self, epoch: int) -> float:
        if epoch < self.warmup_epochs:
            rise = (self.start - self.warmup_start) / self.warmup_epochs
            return self.warmup_start + epoch * rise
        return self.final + 0.5 * (self.start - self.final) * (
            1 + math.cos(math.pi * epoch / self.epochs)
        )


class FinetuneSchedules:
    """The schedules as functions of the step.

    While the backbone is frozen, the classifier has a constant learning rate; then the schedule
    begins.
    """

    def __init__(
        self, config: FinetuneScheduleConfig, *, steps_per_epoch: int, batch_size: int
    ) -> None:
        self.steps_per_epoch = steps_per_epoch
        self.steps = config.epochs * steps_per_epoch
        self._peak = config.lr * batch_size / config.lr_batch
        self._frozen_lr = (config.frozen_lr or config.lr) * batch_size / config.lr_batch
        self._frozen_epochs = config.freeze_backbone_epochs
        self._by_epoch = config.lr_changes == "epoch"
        epochs = config.epochs - config.freeze_backbone_epochs
        self._of_epoch = EpochCosine(
            self._peak, config.lr_final, epochs, config.lr_warmup_epochs, config.lr_warmup_start
        )
        self._of_step = Cosine(
            self._peak,
            config.lr_final,
            epochs * steps_per_epoch,
            int(config.lr_warmup_epochs * steps_per_epoch),
            config.lr_warmup_start,
        )

    def at(self, step: int) -> FinetuneNow:
        """The values at a step, counted from 0."""
        epoch = step // self.steps_per_epoch
        if epoch < self._frozen_epochs:
            return FinetuneNow(step, epoch, self._frozen_lr, backbone_frozen=True)
        since = epoch - self._frozen_epochs
        if self._by_epoch:
            return FinetuneNow(step, epoch, self._of_epoch(since))
        return FinetuneNow(
            step, epoch, self._of_step(step - self._frozen_epochs * self.steps_per_epoch)
        )
