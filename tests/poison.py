"""Trainings in which some steps are not finite, as bad data or a high learning rate make them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from attmask.data.views import Views
from attmask.schedules import StepSchedule
from attmask.step import StepReport
from attmask.train import Trainer
from attmask.update import Update


@contextmanager
def poisoned(when: Callable[[StepSchedule], bool]) -> Iterator[None]:
    """Show the network pixels that are no numbers in steps that `when` chooses."""
    learn = Trainer.learn

    def poisoned_learn(
        self: Trainer, views: Views, now: StepSchedule, *, observe: bool = False
    ) -> tuple[StepReport, Update]:
        if when(now):
            views = replace(views, globals=views.globals * torch.nan)
        return learn(self, views, now, observe=observe)

    Trainer.learn = poisoned_learn  # type: ignore[method-assign]
    try:
        yield
    finally:
        Trainer.learn = learn  # type: ignore[method-assign]
