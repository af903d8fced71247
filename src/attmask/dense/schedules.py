"""The learning rate of dense prediction: a linear warm-up below a rate that falls."""

from attmask.dense.config import DenseScheduleConfig
from attmask.schedules import Now


class DenseSchedules:
    """The schedules as functions of the step.

    The warm-up is a factor of the rate that the step would have without it, as in mmcv.
    """

    def __init__(
        self, config: DenseScheduleConfig, *, steps_per_epoch: int, batch_size: int
    ) -> None:
        self.config, self.steps_per_epoch = config, steps_per_epoch
        whole = config.epochs * steps_per_epoch
        self.steps = whole if config.steps is None else min(config.steps, whole)
        scale = 1.0 if config.lr_batch is None else batch_size / config.lr_batch
        self._peak = config.lr * scale

    def at(self, step: int) -> Now:
        """The values at a step, counted from 0."""
        epoch = step // self.steps_per_epoch
        return Now(step, epoch, self._peak * self._fall(step, epoch) * self._warmup(step))

    def _fall(self, step: int, epoch: int) -> float:
        if self.config.lr_falls == "linear":
            return 1 - step / self.steps
        return self.config.lr_drop ** sum(epoch >= drop for drop in self.config.lr_drop_epochs)

    def _warmup(self, step: int) -> float:
        steps, first = self.config.lr_warmup_steps, self.config.lr_warmup_factor
        return 1.0 if step >= steps else 1 - (1 - step / steps) * (1 - first)
