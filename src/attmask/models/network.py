"""Student and teacher: a backbone with its heads."""

import copy
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from attmask.mask import Mask
from attmask.models.backbone import Backbone, Summary
from attmask.models.heads import Head, HeadConfig

ChooseMask: TypeAlias = Callable[[Float[Tensor, "B N"]], Mask]
"""A function from `[CLS]` attention to a mask."""


class Output(NamedTuple):
    """Logits over the prototypes: of `[CLS]`, and of the hidden patches, image after image."""

    cls: Float[Tensor, "B K"]
    patches: Float[Tensor, "M K"]
    mask: Mask | None
    """The mask of hidden patches; None if nothing is hidden."""
    patch_mean: Float[Tensor, "K"] | None = None
    """The mean logits of all patches, hidden or not, if requested."""
    summary: Summary | None = None
    """What the teacher saw in each image."""


class Network(nn.Module):
    """A backbone with a head for `[CLS]` and one for patches, by default the same."""

    def __init__(self, backbone: Backbone, config: HeadConfig) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = Head(backbone.width, config)
        self.own_patch_head = None if config.shared else Head(backbone.width, config)

    @property
    def patch_head(self) -> Head:
        """The head for patches."""
        return self.own_patch_head or self.head

    def prepare(self) -> None:
        """Compute nothing: an engine that hooks calls of the network prepares it at the first."""

    def last_layers(self) -> list[nn.Parameter]:
        """The parameters of the last layer, which are frozen at first."""
        heads = {id(h): h for h in (self.head, self.patch_head)}.values()
        return [p for head in heads for p in head.last_layer.parameters()]

    def of_backbone(self) -> list[nn.Parameter]:
        """The parameters that change the features of images; the mask token does not."""
        mask_token = self.backbone.mask_token
        return [p for p in self.backbone.parameters() if p is not mask_token]


class Student(Network):
    """Predicts the teacher's output from crops with masked patches."""

    def forward(
        self,
        images: Float[Tensor, "B C height width"],
        mask: Mask | None = None,
        *,
        predict_patches: bool = True,
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> Output:
        """Logits of `[CLS]` and, where they are to be predicted, of the hidden patches.

        `keep` is the drop path. The head sees only the tokens whose logits are returned.
        """
        hidden = None if mask is None else mask.hidden
        wanted = mask if predict_patches else None
        tokens = self.backbone.select(images, hidden, wanted, keep)
        if self.own_patch_head is not None:
            return Output(self.head(tokens.cls), self.own_patch_head(tokens.patches), mask)
        logits = self.head(torch.cat([tokens.cls, tokens.patches]))
        return Output(logits[: len(tokens.cls)], logits[len(tokens.cls) :], mask)


class Teacher(Network):
    """Sees global crops without masks; its attention is the input of the masker."""

    @classmethod
    def of(cls, student: Student) -> "Teacher":
        """A teacher with a copy of the student's weights, without gradients."""
        teacher = cls.__new__(cls)
        nn.Module.__init__(teacher)
        for name, module in student.named_children():
            teacher.add_module(name, copy.deepcopy(module))
        if student.own_patch_head is None:
            teacher.own_patch_head = None
        return teacher.requires_grad_(False)

    def forward(
        self,
        images: Float[Tensor, "B C height width"],
        choose: ChooseMask,
        *,
        read_patches: bool = True,
        patch_mean: bool = False,
    ) -> Output:
        """Logits of `[CLS]` and, where patches are read, of those that `choose` hides.

        Logits are exact, without autocast: a temperature of 0.01 magnifies the rounding of bf16
        to a fifth of a nat. The mean of the logits of all patches comes at the price of one: the
        last layer is linear, so it is the last layer of the mean.
        """
        if not read_patches:
            summary = self.backbone.summary(images)
            logits = self.head.exact_logits(self.head.embed(summary.cls))
            return Output(logits, logits[:0], choose(summary.attention), summary=summary)
        tokens, head = self.backbone(images), self.patch_head
        mask = choose(tokens.attention)
        image, patch, _ = mask.places
        if patch_mean:
            points = head.embed(tokens.patches)
            mean, points = head.mean_logits(points), points[image, patch]
        else:
            mean, points = None, head.embed(tokens.patches[image, patch])
        cls = self.head.exact_logits(self.head.embed(tokens.cls))
        # A copy, because a view of one token would hold the memory of all of them.
        summary = Summary(tokens.cls.clone(), tokens.attention, tokens.norms)
        return Output(cls, head.exact_logits(points), mask, mean, summary)
