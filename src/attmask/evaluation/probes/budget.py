"""How long linear classifiers are trained: enough steps for any number of images.

The paper's batch size of 1024 makes 125,000 steps on ImageNet, but only 100 on a thousand images,
which are too few to converge. docs/evaluation.md has the measurements.
"""

from dataclasses import asdict, dataclass
from typing import Any

LEAST_STEPS = 1000
LARGEST_BATCH = 1024
"""The paper's; used with 20,000 images or more."""
SMALLEST_BATCH = 32


@dataclass(frozen=True)
class Budget:
    """Batch size and number of epochs for a number of images."""

    images: int
    batch_size: int
    epochs: int

    @property
    def steps(self) -> int:
        """The total number of training steps."""
        return self.epochs * _steps_of_an_epoch(self.images, self.batch_size)

    def describe(self) -> dict[str, Any]:
        """For the details of a card."""
        return {**asdict(self), "steps": self.steps}

    def __str__(self) -> str:
        return (
            f"{self.epochs} epochs of {self.images:,} images with a batch size of "
            f"{self.batch_size}: {self.steps:,} steps"
        )


def training_budget(
    images: int, *, batch_size: int | None, epochs: int | None, usual_epochs: int
) -> Budget:
    """Choose the batch size and the epochs that are None such that there are at least 1,000 steps.

    The batch size is the largest power of two from 32 to 1024 that makes this many steps; if 32 is
    not enough, there are more epochs than usual.
    """
    size = batch_size or LARGEST_BATCH
    if batch_size is None:
        while size > SMALLEST_BATCH and _steps(images, size, epochs or usual_epochs) < LEAST_STEPS:
            size //= 2
    if epochs is None:
        epochs = max(usual_epochs, -(-LEAST_STEPS // _steps_of_an_epoch(images, size)))
    return Budget(images, size, epochs)


def _steps(images: int, batch_size: int, epochs: int) -> int:
    return epochs * _steps_of_an_epoch(images, batch_size)


def _steps_of_an_epoch(images: int, batch_size: int) -> int:
    return max(1, -(-images // batch_size))


def scaled_rates(rates: tuple[float, ...], batch_size: int) -> list[float]:
    """Scale learning rates for a batch size of 256 to another batch size."""
    return [rate * batch_size / 256 for rate in rates]
