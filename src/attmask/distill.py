"""The method: the student predicts what the teacher sees in patches chosen by its attention."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from attmask.data.views import GLOBAL_VIEWS, Views
from attmask.distributed import average_, own_part
from attmask.host import to_device
from attmask.losses import (
    Centre,
    LossConfig,
    cls_loss,
    mean_of_all,
    patch_loss,
    sharpen,
    sinkhorn,
)
from attmask.mask import Mask
from attmask.masking import Masker
from attmask.models.backbone import Summary, drop_path_rates
from attmask.models.blocks import drop_path
from attmask.models.network import Output, Student, Teacher
from attmask.schedules import StepSchedule


@dataclass(frozen=True)
class Losses:
    """The loss of a step: the total and, for the log, its terms."""

    total: Float[Tensor, ""]
    cls: Float[Tensor, ""]
    patch: Float[Tensor, ""]

    @classmethod
    def sum(cls, parts: "Sequence[Losses]") -> "Losses":
        """The loss of which these are the parts."""
        total, of_cls, of_patch = (
            torch.stack([getattr(part, name) for part in parts]).sum()
            for name in ("total", "cls", "patch")
        )
        return cls(total, of_cls, of_patch)

    def detach(self) -> "Losses":
        """The numbers alone."""
        return Losses(self.total.detach(), self.cls.detach(), self.patch.detach())


@dataclass(frozen=True)
class MeanLogits:
    """The teacher's mean logits, for the update of the centres; None if there is no centre."""

    cls: Float[Tensor, "K"] | None
    patches: Float[Tensor, "K"] | None

    @classmethod
    def of_all(cls, parts: "Sequence[MeanLogits]") -> "MeanLogits":
        """The means over the equal micro-batches of a step and over all processes."""
        means = {name: [getattr(part, name) for part in parts] for name in ("cls", "patches")}
        return cls(**{name: None if None in of else mean_of_all(of) for name, of in means.items()})


@dataclass(frozen=True)
class Targets:
    """The teacher's targets for global crops: probabilities for each `[CLS]` and hidden patch."""

    cls: Float[Tensor, "2 B K"]
    patches: Float[Tensor, "M K"]
    mask: Mask
    mean_logits: MeanLogits
    summary: Summary
    """What the teacher saw in each global crop."""


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics of a step."""

    hidden: float
    """Fraction of all patches."""
    teacher_entropy: Float[Tensor, ""]
    """Of one `[CLS]` target; ln K is uniform."""
    mean_target: Float[Tensor, "K"]
    """Over the images of this process."""

    def prototypes_used(self) -> Float[Tensor, ""]:
        """The exponential of the entropy of the mean target of all processes; 1 is collapse."""
        return _entropy(average_(self.mean_target.clone())).exp()

    @classmethod
    def of(cls, targets: Targets) -> "Diagnostics":
        """Compute the diagnostics from the targets of a batch."""
        return cls(
            hidden=targets.mask.total / targets.mask.hidden.numel(),
            teacher_entropy=_entropy(targets.cls).mean(),
            mean_target=targets.cls.mean((0, 1)),
        )


@runtime_checkable
class Engine(Protocol):
    """A forward pass; gradients are shared between processes only where asked."""

    def __call__(self, *inputs: Any, share_gradients: bool, **settings: Any) -> Any:
        """The output of the network for these inputs."""
        ...


def _alone(student: Student) -> Engine:
    """The student of a single process, which has nobody to share gradients with."""

    def call(*inputs: Any, share_gradients: bool, **settings: Any) -> Output:
        output: Output = student(*inputs, **settings)
        return output

    return call


class Distiller(nn.Module):
    """A student that learns from its own moving average."""

    def __init__(
        self, student: Student, masker: Masker, loss: LossConfig, *, drop_path: float, seed: int
    ) -> None:
        super().__init__()
        self.student = student
        self._engine: Engine = _alone(student)
        self.teacher = Teacher.of(student)
        self.masker = masker
        self.loss = loss
        self.seed = seed
        self.drop_path_rates = drop_path_rates(student.backbone, drop_path)
        prototypes = student.head.last_layer.out_features
        self.cls_centre = Centre(prototypes, loss.centre_momentum)
        self.patch_centre = Centre(prototypes, loss.centre_momentum)

    def wrap_student(self, engine: Engine) -> None:
        """Call the student through an engine such as DDP; names of weights stay as they are."""
        self._engine = engine

    def forward(self, views: Views, now: StepSchedule) -> Losses:
        """The total loss of a batch."""
        return Losses.sum(list(self.loss_parts(views, self.targets(views, now), now)))

    @torch.no_grad()
    def targets(self, views: Views, now: StepSchedule) -> Targets:
        """The teacher's pass: a mask from its attention, then centred or balanced logits."""
        grid = self.teacher.backbone.grid(*views.globals.shape[-2:])

        def choose(attention: Float[Tensor, "crops N"]) -> Mask:
            # If the network has diverged, its loss is not finite either: the step is skipped.
            attention = attention.nan_to_num()
            each = (
                self.masker.mask(
                    of_view, grid, step=now.step, first_image=views.first_image, view=view
                )
                for view, of_view in enumerate(attention.chunk(GLOBAL_VIEWS))
            )
            return Mask.join(list(each))

        by_mean = self.loss.centring == "mean"
        reads_patches = self.loss.patch_weight > 0
        seen = self.teacher(
            views.globals.flatten(0, 1),
            choose,
            read_patches=reads_patches,
            patch_mean=by_mean and reads_patches,
        )
        if by_mean:
            cls = sharpen(seen.cls, self.cls_centre.value, now.cls_temperature)
            patches = sharpen(seen.patches, self.patch_centre.value, now.patch_temperature)
        else:
            cls = sinkhorn(seen.cls, now.cls_temperature)
            patches = sinkhorn(seen.patches, now.patch_temperature)
        return Targets(
            cls=cls.unflatten(0, (GLOBAL_VIEWS, -1)),
            patches=patches,
            mask=seen.mask,
            mean_logits=MeanLogits(seen.cls.mean(0) if by_mean else None, seen.patch_mean),
            summary=seen.summary,
        )

    def loss_parts(
        self, views: Views, targets: Targets, now: StepSchedule, *, is_last: bool = True
    ) -> Iterator[Losses]:
        """The loss in two parts, of local and of global crops, whose sum is the loss.

        They meet in the teacher's targets alone, so whoever takes the gradient of one before the
        other is asked for holds the activations of one at a time. Global crops come last, because
        only they reach every parameter: with the gradient of the last micro-batch's, processes
        share what all parts have added up.
        """
        if len(views.locals):
            yield self._local_part(views, targets, now)
        yield self._global_part(views, targets, now, share_gradients=is_last)

    def _global_part(
        self, views: Views, targets: Targets, now: StepSchedule, *, share_gradients: bool
    ) -> Losses:
        """The loss of the student's masked global crops."""
        loss, mask = self.loss, targets.mask
        guess: Output = self._engine(
            views.globals.flatten(0, 1),
            mask,
            share_gradients=share_gradients,
            predict_patches=loss.patch_weight > 0,
            keep=self._drop_path(views, now, first_view=0, count=GLOBAL_VIEWS),
        )
        cls = cls_loss(
            guess.cls.unflatten(0, (GLOBAL_VIEWS, -1)),
            targets.cls,
            loss.student_temperature,
            views=GLOBAL_VIEWS + len(views.locals),
        )
        if loss.patch_weight == 0:
            return Losses(cls, cls.detach(), torch.zeros_like(cls))
        weight = patch_weights(mask, cls.dtype)
        patch = patch_loss(guess.patches, targets.patches, weight, loss.student_temperature)
        return Losses(cls + loss.patch_weight * patch, cls.detach(), patch.detach())

    def _local_part(self, views: Views, targets: Targets, now: StepSchedule) -> Losses:
        """The loss of the student's local crops against the teacher's global crops."""
        count = len(views.locals)
        guess: Output = self._engine(
            views.locals.flatten(0, 1),
            share_gradients=False,
            keep=self._drop_path(views, now, first_view=GLOBAL_VIEWS, count=count),
        )
        cls = cls_loss(
            guess.cls.unflatten(0, (count, -1)),
            targets.cls,
            self.loss.student_temperature,
            first_view=GLOBAL_VIEWS,
            views=GLOBAL_VIEWS + count,
        )
        return Losses(cls, cls.detach(), torch.zeros_like(cls))

    def _drop_path(
        self, views: Views, now: StepSchedule, *, first_view: int, count: int
    ) -> Float64[np.ndarray, "L 2 crops"] | None:
        if not self.drop_path_rates.any():
            return None
        view = np.arange(first_view, first_view + count)
        return drop_path(
            self.drop_path_rates,
            seed=self.seed,
            step=now.step,
            images=np.tile(views.images, count),
            views=view.repeat(len(views.images)),
        )

    @torch.no_grad()
    def update_teacher_(self, momentum: float) -> None:
        """The moving average: teacher = m * teacher + (1 - m) * student."""
        teacher = [own_part(p) for p in self.teacher.parameters()]
        student = [own_part(p) for p in self.student.parameters()]
        torch._foreach_lerp_(teacher, student, 1 - momentum)

    @torch.no_grad()
    def update_centres_(self, means: MeanLogits, finite: Bool[Tensor, ""] | None = None) -> None:
        """Once for each optimiser step, after use; not where the step was not `finite`."""
        for centre, mean in ((self.cls_centre, means.cls), (self.patch_centre, means.patches)):
            if mean is not None:
                centre.update_(mean, finite)


def patch_weights(mask: Mask, dtype: torch.dtype) -> Float[Tensor, "M"]:
    """The weight of each hidden patch in a mean over patches of an image, then over images.

    Images without a mask count as zero.
    """
    of_each = np.repeat(mask.counts * len(mask), mask.counts)
    weight: Tensor = 1 / to_device(of_each, mask.hidden.device).to(dtype)
    return weight


def _entropy(probabilities: Float[Tensor, "*tokens K"]) -> Float[Tensor, "*tokens"]:
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy
