"""What every training step ends with: one update by the optimizer, unless it is not finite."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.optim import Optimizer

from attmask.hardware import Precision
from attmask.metric import Metric
from attmask.optim import clip_each_parameter_, gradient_norms


@runtime_checkable
class Report(Protocol):
    """What a step computed, still on the device."""

    @property
    def mean_loss(self) -> Float[Tensor, ""]:
        """The loss of all micro-batches and processes."""

    def metrics(self) -> tuple[Metric, ...]:
        """The total loss first; this waits for the device, and all processes take part."""


@dataclass(frozen=True)
class Update:
    """What came of an update, still on the device; the same in all processes."""

    finite: Bool[Tensor, ""]
    """Whether loss and gradients were finite; otherwise the update was skipped."""
    gradient_norms: Float[Tensor, "P"]
    """Of each trained parameter, before clipping."""


def apply_gradients_(
    optimizer: Optimizer,
    parameters: Sequence[nn.Parameter],
    mean_loss: Float[Tensor, ""],
    precision: Precision,
    *,
    clip: float | None = None,
) -> Update:
    """Unscale, clip and apply the gradients; where one or the loss is not finite, change nothing.

    The device decides, so nothing waits for it.
    """
    precision.unscale_(optimizer)
    norms = gradient_norms(parameters)
    finite = norms.isfinite().all() & mean_loss.isfinite()
    if clip is not None:
        clip_each_parameter_(parameters, clip, norms)
    precision.step(optimizer, finite)
    return Update(finite, norms)
