"""One training step: gradients of the losses, then one update."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from attmask import distributed
from attmask.data.views import Views
from attmask.distill import Diagnostics, Distiller, Losses, MeanLogits
from attmask.hardware import Precision
from attmask.health import Health, health_metrics
from attmask.metric import Metric
from attmask.optim import set_rates
from attmask.schedules import StepSchedule
from attmask.update import Update, apply_gradients_


@dataclass(frozen=True)
class StepReport:
    """Losses and diagnostics of each micro-batch, still on the device."""

    losses: Sequence[Losses]
    diagnostics: Sequence[Diagnostics]
    mean_logits: MeanLogits
    """Of all micro-batches and processes."""
    mean_loss: Float[Tensor, ""]
    """Of all micro-batches and processes."""
    health: Sequence[Health] = ()
    """Of each micro-batch, where the step was observed."""

    def metrics(self) -> tuple[Metric, ...]:
        """Losses, the total first, and diagnostics as means over micro-batches.

        This waits for the device, and all processes take part.
        """
        total, cls, patch = (_mean(self.losses, name) for name in ("total", "cls", "patch"))
        hidden, entropy = (_mean(self.diagnostics, n) for n in ("hidden", "teacher_entropy"))
        used = fmean(float(part.prototypes_used()) for part in self.diagnostics)
        return (
            Metric("loss.total", total, "nats", False, title="loss"),
            Metric("loss.cls", cls, "nats", False, title="loss of [CLS]"),
            Metric("loss.patch", patch, "nats", False, title="loss of masked patches"),
            Metric("health.hidden", 100 * hidden, "%", None, title="patches hidden"),
            Metric(
                "health.teacher_entropy",
                entropy,
                "nats",
                None,
                title="entropy of the teacher's targets",
            ),
            Metric("health.prototypes_used", used, "prototypes", None, title="prototypes used"),
            # The loss of [CLS] is a mean over pairs in which each target occurs equally often.
            Metric("health.kl", cls - entropy, "nats", None, title="KL from teacher to student"),
            *(health_metrics(self.health) if self.health else ()),
        )


def _mean(parts: Sequence[object], name: str) -> float:
    """The mean of a number over micro-batches, as a number of the host."""
    return fmean(float(getattr(part, name)) for part in parts)


def train_step(
    distiller: Distiller,
    optimizer: Optimizer,
    views: Views,
    now: StepSchedule,
    precision: Precision,
    *,
    accumulate: int = 1,
    clip: float | None = None,
    observe: bool = False,
) -> StepReport:
    """Teacher, mask, student, losses for each micro-batch; then one update of everything."""
    report = compute_gradients(
        distiller, optimizer, views, now, precision, accumulate=accumulate, observe=observe
    )
    update_(distiller, optimizer, report, now, precision, clip=clip)
    return report


def compute_gradients(
    distiller: Distiller,
    optimizer: Optimizer,
    views: Views,
    now: StepSchedule,
    precision: Precision,
    *,
    accumulate: int = 1,
    observe: bool = False,
) -> StepReport:
    """Teacher, mask, student, losses for each micro-batch; no weight and no centre changes.

    A step that is observed also reports its health, which costs a little time.
    """
    optimizer.zero_grad(set_to_none=True)
    losses, diagnostics, mean_logits, health = [], [], [], []
    for number, part in enumerate(views.split(accumulate), start=1):
        with precision.autocast():
            targets = distiller.targets(part, now)
        is_last = number == accumulate
        terms = []
        # Each part of the loss is differentiated before the next is computed: fewer activations.
        for loss in precision.cast(distiller.loss_parts(part, targets, now, is_last=is_last)):
            precision.backward(loss.total / accumulate)
            terms.append(loss.detach())
        losses.append(Losses.sum(terms))
        diagnostics.append(Diagnostics.of(targets))
        mean_logits.append(targets.mean_logits)
        if observe:
            health.append(Health.of(targets.summary, part))
    # Shared here, so that an update needs no other process and is never left half done.
    mean_loss = distributed.average_(torch.stack([loss.total for loss in losses]).mean())
    return StepReport(losses, diagnostics, MeanLogits.of_all(mean_logits), mean_loss, health)


def update_(
    distiller: Distiller,
    optimizer: Optimizer,
    report: StepReport,
    now: StepSchedule,
    precision: Precision,
    *,
    clip: float | None = None,
) -> Update:
    """One update of the student by its gradients, then of the teacher and the centres.

    Where the loss or a gradient is not finite, student and centres stay as they are. The teacher's
    average goes on towards the unchanged student.
    """
    set_rates(optimizer, lr=now.lr, weight_decay=now.weight_decay, backbone_rate=now.backbone_rate)
    if now.last_layer_frozen:
        for parameter in distiller.student.last_layers():
            parameter.grad = None
    if now.backbone_rate == 0:
        for parameter in distiller.student.of_backbone():
            parameter.grad = None
    student = list(distiller.student.parameters())
    update = apply_gradients_(optimizer, student, report.mean_loss, precision, clip=clip)
    distiller.update_teacher_(now.momentum)
    distiller.update_centres_(report.mean_logits, update.finite)
    return update
