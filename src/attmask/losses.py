"""Distillation: the student's logits against the teacher's centred and sharpened ones."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attmask import distributed
from attmask.settings import Config, setting


class LossConfig(Config):
    """Settings of the losses."""

    patch_weight: float = setting(
        1.0, "weight lambda of the patch loss (0: DINO, [CLS] only)", paper="1 iBOT, 0 DINO", ge=0
    )
    student_temperature: float = setting(
        0.1, "temperature of the student's softmax", paper="0.1", gt=0
    )
    centring: Literal["mean", "sinkhorn"] = setting(
        "mean",
        "how collapse is prevented: a running mean is subtracted from the teacher's logits, or "
        "logits balanced over prototypes within the batch (for small runs)",
        paper="mean",
    )
    centre_momentum: float = setting(
        0.9, "momentum of the running mean of the teacher's logits", paper="0.9", ge=0, lt=1
    )


class Centre(nn.Module):
    """The running mean of the teacher's logits, which is subtracted to prevent collapse."""

    value: Tensor

    def __init__(self, prototypes: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("value", torch.zeros(prototypes))

    def update_(self, mean: Float[Tensor, "K"], finite: Bool[Tensor, ""] | None = None) -> None:
        """Move towards the mean logits of a step, unless that step was not `finite`."""
        moved = self.value * self.momentum
        moved.add_(mean.to(self.value.dtype), alpha=1 - self.momentum)
        self.value.copy_(moved if finite is None else torch.where(finite, moved, self.value))


def mean_of_all(parts: Sequence[Float[Tensor, "K"]]) -> Float[Tensor, "K"]:
    """The mean over the equal micro-batches of a step and over all processes."""
    return distributed.average_(_full(torch.stack(list(parts))).mean(dim=0))


def sharpen(
    logits: Float[Tensor, "*tokens K"], centre: Float[Tensor, "K"], temperature: float
) -> Float[Tensor, "*tokens K"]:
    """The teacher's probabilities: centred, then sharpened."""
    return ((_full(logits) - centre) / temperature).softmax(dim=-1)


def sinkhorn(
    logits: Float[Tensor, "M K"], temperature: float, iterations: int = 3
) -> Float[Tensor, "M K"]:
    """The teacher's probabilities by Sinkhorn and Knopp: every prototype gets an equal share.

    Rows and columns are normalised in turn, over all processes; rows last, so that they are
    probabilities. With a batch that does not use all prototypes this sharpens from the first
    step, where a running mean leaves the targets of a small network nearly uniform.
    """
    log_q = _full(logits) / temperature
    for _ in range(iterations):
        log_q = log_q - distributed.logsumexp_over_rows(log_q)
        log_q = log_q - log_q.logsumexp(dim=1, keepdim=True)
    return log_q.exp()


def cls_loss(
    student: Float[Tensor, "V B K"],
    teacher: Float[Tensor, "2 B K"],
    temperature: float,
    *,
    first_view: int = 0,
    views: int | None = None,
) -> Float[Tensor, ""]:
    """Cross-entropy between the teacher's view u and every other student view v (equation 3).

    The first two student views are the teacher's (masked); the others are local crops. `teacher`
    holds probabilities, `student` logits. Mean over pairs and images; where `student` holds only
    the views from `first_view` on, of `views` in all, their part of that mean.
    """
    log_student = (_full(student) / temperature).log_softmax(dim=-1)
    with torch.autocast(student.device.type, enabled=False):  # a product, so it would be bf16
        pairs = -torch.einsum("ubk,vbk->uv", teacher, log_student)
    here, images = student.shape[:2]
    view = torch.arange(first_view, first_view + here, device=pairs.device)
    other = torch.arange(2, device=pairs.device)[:, None] != view
    every = 2 * (first_view + here if views is None else views) - 2
    return (pairs * other).sum() / (every * images)


def patch_loss(
    student: Float[Tensor, "M K"],
    teacher: Float[Tensor, "M K"],
    weight: Float[Tensor, "M"],
    temperature: float,
) -> Float[Tensor, ""]:
    """Cross-entropy on the masked patches (equation 4), each with its weight in the mean."""
    log_student = (_full(student) / temperature).log_softmax(dim=-1)
    each = -(teacher * log_student).sum(dim=-1)
    return (each * weight).sum()


def _full(logits: Tensor) -> Tensor:
    """At least single precision: a softmax over thousands of prototypes needs it."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))
