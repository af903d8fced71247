"""The method: the teacher's attention decides what the student must guess."""

import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attmask.losses import Centre, LossConfig, balance, cls_loss, patch_loss, sharpen
from attmask.masking import Masker
from attmask.models.backbone import drop_path_rates
from attmask.models.blocks import drop_path
from attmask.models.network import Network
from attmask.schedules import Now


@dataclass(frozen=True)
class Losses:
    """What a step minimises, and what tells whether it goes well."""

    total: Float[Tensor, ""]
    cls: Float[Tensor, ""]
    patch: Float[Tensor, ""]
    hidden: Float[Tensor, ""]  # share of all patches
    teacher_entropy: Float[Tensor, ""]  # of one [CLS] target; ln K is uniform
    prototypes_used: Float[Tensor, ""]  # exp of the entropy of the mean target; 1 is collapse

    def joined(self, other: "Losses") -> "Losses":
        """The sum of two shares."""
        return Losses(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def detached(self) -> "Losses":
        """The numbers alone."""
        return replace(self, total=self.total.detach())


@dataclass(frozen=True)
class Targets:
    """What the teacher sees in whole crops: probabilities for each `[CLS]` and masked patch."""

    cls: Float[Tensor, "2 B K"]
    patches: Float[Tensor, "M K"]
    mask: Bool[Tensor, "crops N"]


class Distiller(nn.Module):
    """A student that learns from its own moving average."""

    def __init__(
        self, student: Network, masker: Masker, loss: LossConfig, *, drop_path: float, seed: int
    ) -> None:
        super().__init__()
        self.student = student
        self.teacher = copy.deepcopy(student).requires_grad_(False)
        self.masker = masker
        self.loss = loss
        self.seed = seed
        self.drop_path = drop_path
        prototypes = student.head.last_layer.out_features
        self.cls_centre = Centre(prototypes, loss.centre_momentum)
        self.patch_centre = Centre(prototypes, loss.centre_momentum)

    def forward(
        self,
        whole: Float[Tensor, "2 B C H W"],
        local: Float[Tensor, "L B C h w"],
        now: Now,
        first_image: int = 0,
    ) -> Losses:
        """The teacher sees whole crops; its attention picks what the student must guess.

        `first_image` is the place of the first image in the step's batch: masks and drop path
        are drawn for each image by its place, so that micro-batches see what the batch would.
        """
        first, *rest = self.shares(whole, local, now, first_image)
        return functools.reduce(Losses.joined, rest, first)

    def shares(
        self,
        whole: Float[Tensor, "2 B C H W"],
        local: Float[Tensor, "L B C h w"],
        now: Now,
        first_image: int = 0,
    ) -> Iterator[Losses]:
        """The loss in two shares, of whole and of local crops, whose sum `forward` gives.

        They meet in the teacher's targets alone. Who takes the gradient of one before the other
        is asked for holds the activations of one at a time.
        """
        with torch.no_grad():
            target = self._look(whole, now, first_image)
        views = len(whole) + len(local)
        yield self._from_whole(whole, target, now, first_image, views)
        if len(local):
            yield self._from_local(local, target, now, first_image, views)

    def _from_whole(
        self,
        whole: Float[Tensor, "2 B C H W"],
        target: Targets,
        now: Now,
        first_image: int,
        views: int,
    ) -> Losses:
        """What the student guesses of masked crops."""
        wanted = target.mask if self.loss.patch_weight > 0 else None
        keep = self._drop_path(whole, now, first_image, first_view=0)
        guess = self.student.backbone.select(whole.flatten(0, 1), target.mask, wanted, keep)
        cls_scores, patch_scores = self.student.score(guess.cls, guess.patches)
        temperature = self.loss.student_temperature
        seen = cls_scores.unflatten(0, (2, -1))
        cls_part = cls_loss(seen, target.cls, temperature, views=views)
        weights = patch_weights(target.mask, cls_part.dtype)
        weight = weights if wanted is not None else weights[:0]
        patch_part = patch_loss(patch_scores, target.patches, weight, temperature)
        return Losses(
            total=cls_part + self.loss.patch_weight * patch_part,
            cls=cls_part.detach(),
            patch=patch_part.detach(),
            hidden=target.mask.float().mean(),
            teacher_entropy=_entropy(target.cls).mean(),
            prototypes_used=_entropy(target.cls.mean((0, 1))).exp(),
        )

    def _from_local(
        self,
        local: Float[Tensor, "L B C h w"],
        target: Targets,
        now: Now,
        first_image: int,
        views: int,
    ) -> Losses:
        """What the student sees in small crops, against the teacher's whole ones."""
        first_view = views - len(local)
        keep = self._drop_path(local, now, first_image, first_view)
        cls = self.student.backbone.select(local.flatten(0, 1), keep=keep).cls
        scores = self.student.head(cls).unflatten(0, (len(local), -1))
        temperature = self.loss.student_temperature
        part = cls_loss(scores, target.cls, temperature, first_view=first_view, views=views)
        none = torch.zeros_like(part.detach())
        return Losses(part, part.detach(), none, none, none, none)

    def _look(self, whole: Float[Tensor, "2 B C H W"], now: Now, first_image: int) -> Targets:
        """The teacher's pass: masks from its attention, targets, and what the centres need.

        The patch centre is the mean of the scores of *all* patches; the last layer is linear,
        so it is the last layer of the mean, and only masked patches go through it.
        """
        teacher, crops = self.teacher, whole.flatten(0, 1)
        if self.loss.patch_weight > 0:
            seen = teacher.backbone(crops)
            mask = self._mask(seen.attention, whole, now, first_image)
            patches = self._patch_targets(seen.patches, mask, now.patch_temperature)
        else:
            seen = teacher.backbone.summary(crops)
            mask = self._mask(seen.attention, whole, now, first_image)
            patches = whole.new_zeros(0, len(self.patch_centre.value))
        cls = self._cls_targets(seen.cls, now.cls_temperature)
        return Targets(cls=cls.unflatten(0, (2, -1)), patches=patches, mask=mask)

    def _cls_targets(
        self, cls: Float[Tensor, "crops D"], temperature: float
    ) -> Float[Tensor, "crops K"]:
        head = self.teacher.head
        scores = head.exact_scores(head.embed(cls))
        if self.loss.centring == "sinkhorn":
            return balance(scores, temperature)
        self.cls_centre.observe(scores.mean(0))
        return sharpen(scores, self.cls_centre.value, temperature)

    def _patch_targets(
        self,
        patches: Float[Tensor, "crops N D"],
        mask: Bool[Tensor, "crops N"],
        temperature: float,
    ) -> Float[Tensor, "M K"]:
        head = self.teacher.patch_head
        if self.loss.centring == "sinkhorn":
            return balance(head.exact_scores(head.embed(patches[mask])), temperature)
        points = head.embed(patches)
        self.patch_centre.observe(head.mean_scores(points))
        return sharpen(head.exact_scores(points[mask]), self.patch_centre.value, temperature)

    def _mask(
        self,
        attention: Float[Tensor, "crops N"],
        whole: Float[Tensor, "2 B C H W"],
        now: Now,
        first_image: int,
    ) -> Bool[Tensor, "crops N"]:
        grid = self.teacher.backbone.grid(*whole.shape[-2:])
        each = [
            self.masker(view_attention, grid, step=now.step, first_image=first_image, view=view)
            for view, view_attention in enumerate(attention.chunk(2))
        ]
        return torch.cat(each)

    def _drop_path(
        self, crops: Float[Tensor, "V B C h w"], now: Now, first_image: int, first_view: int
    ) -> Float[Tensor, "L 2 crops"] | None:
        if self.drop_path == 0:
            return None
        views, images = crops.shape[:2]
        image = torch.arange(first_image, first_image + images)
        view = torch.arange(first_view, first_view + views)
        return drop_path(
            drop_path_rates(self.student.backbone, self.drop_path),
            seed=self.seed,
            step=now.step,
            images=image.repeat(views),
            views=view.repeat_interleave(images),
        )

    @torch.no_grad()
    def update_teacher_(self, momentum: float) -> None:
        """The moving average: teacher = m * teacher + (1 - m) * student."""
        teacher: list[Tensor] = list(self.teacher.parameters())
        student: list[Tensor] = list(self.student.parameters())
        torch._foreach_lerp_(teacher, student, 1 - momentum)

    @torch.no_grad()
    def update_centres_(self) -> None:
        """Once for each optimiser step, after use."""
        if self.loss.centring == "sinkhorn":
            return
        self.cls_centre.update_()
        if self.loss.patch_weight > 0:
            self.patch_centre.update_()


def patch_weights(mask: Bool[Tensor, "B N"], dtype: torch.dtype) -> Float[Tensor, "M"]:
    """The weight of each masked patch in a mean over patches of an image, then over images.

    Images without a mask count as zero.
    """
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    weight: Tensor = 1 / (count * len(mask)).to(dtype)
    return weight.expand_as(mask)[mask]


def _entropy(probabilities: Float[Tensor, "*tokens K"]) -> Float[Tensor, "*tokens"]:
    entropy: Tensor = torch.special.entr(probabilities).sum(dim=-1)
    return entropy
