"""The method as one forward pass, held against a plain computation of everything."""

from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from attmask.data.views import Views
from attmask.distill import Diagnostics, Distiller, MeanLogits, patch_weights
from attmask.losses import LossConfig
from attmask.mask import Grid, Mask
from attmask.masking import Block, Draws, High, Hint, Masker, Random, Strategy
from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.heads import HeadConfig
from attmask.models.network import Network, Student
from attmask.schedules import StepSchedule

NOW = StepSchedule(
    step=3,
    epoch=1,
    lr=0.1,
    weight_decay=0.1,
    momentum=0.9,
    cls_temperature=0.05,
    patch_temperature=0.06,
    last_layer_frozen=False,
)
ALWAYS_HIGH = Masker(High(), (0.2, 0.6), probability=1.0)
PROTOTYPES = 16

assert_near = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)


def distiller(
    masker: Masker = ALWAYS_HIGH,
    *,
    shared: bool = True,
    patch_weight: float = 1.0,
    drop_path: float = 0.0,
) -> Distiller:
    """A small student and another teacher, both far from their initial weights."""
    torch.manual_seed(0)
    config = BackboneConfig(
        name="vit_tiny_patch16_224", patch_size=8, width=24, depth=2, heads=3, registers=1
    )
    backbone = build_backbone(config, image_size=48, channels=3)
    head = HeadConfig(prototypes=PROTOTYPES, hidden=32, bottleneck=12, shared=shared)
    loss = LossConfig(patch_weight=patch_weight)
    made = Distiller(Student(backbone, head), masker, loss, drop_path=drop_path, seed=5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
        made.cls_centre.value += 0.1 * torch.randn(PROTOTYPES)
        made.patch_centre.value += 0.1 * torch.randn(PROTOTYPES)
    return made


def views(images: int = 4, local: int = 3, first_image: int = 0) -> Views:
    chance = torch.Generator().manual_seed(1)
    return Views(
        torch.randn(2, images, 3, 48, 48, generator=chance),
        torch.randn(local, images, 3, 24, 24, generator=chance),
        first_image,
    )


@dataclass(frozen=True)
class Plain:
    """The same step with nothing left out."""

    cls: Tensor
    patch: Tensor
    cls_centre: Tensor
    patch_centre: Tensor
    masks: list[Tensor]


def all_scores(network: Network, crops: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The head on every token."""
    tokens = network.backbone(crops, mask)
    return network.head(tokens.cls), network.patch_head(tokens.patches)


def cross_entropy(teacher: Tensor, centre: Tensor, temperature: float, student: Tensor) -> Tensor:
    target = F.softmax((teacher - centre) / temperature, dim=-1)
    return -(target * F.log_softmax(student / 0.1, dim=-1)).sum(-1)


def plain_step(made: Distiller, given: Views) -> Plain:
    teacher_cls, teacher_patch, student_cls, student_patch, masks = [], [], [], [], []
    for view, crops in enumerate(given.globals):
        with torch.no_grad():
            cls, patch = all_scores(made.teacher, crops, None)
            attention = made.teacher.backbone(crops).attention
        mask = made.masker(attention, (6, 6), step=NOW.step, view=view)
        teacher_cls.append(cls)
        teacher_patch.append(patch)
        masks.append(mask)
        cls, patch = all_scores(made.student, crops, mask)
        student_cls.append(cls)
        student_patch.append(patch)
    student_cls += [all_scores(made.student, crops, None)[0] for crops in given.locals]

    pairs = [
        cross_entropy(t, made.cls_centre.value, NOW.cls_temperature, s).mean()
        for u, t in enumerate(teacher_cls)
        for v, s in enumerate(student_cls)
        if u != v
    ]
    per_view = []
    for t, s, mask in zip(teacher_patch, student_patch, masks, strict=True):
        each = cross_entropy(t, made.patch_centre.value, NOW.patch_temperature, s)
        per_image = [
            (each[i] * mask[i]).sum() / max(1, int(mask[i].sum())) for i in range(len(mask))
        ]
        per_view.append(torch.stack(per_image).mean())

    def moved(centre: Tensor, scores: list[Tensor]) -> Tensor:
        return 0.9 * centre + 0.1 * torch.cat(scores).flatten(0, -2).mean(0)

    return Plain(
        cls=torch.stack(pairs).mean(),
        patch=torch.stack(per_view).mean(),
        cls_centre=moved(made.cls_centre.value, teacher_cls),
        patch_centre=moved(made.patch_centre.value, teacher_patch),
        masks=masks,
    )


def gradients(module: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    module.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("local", [3, 0])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("patch_weight", [1.0, 0.5, 0.0])
@pytest.mark.parametrize(
    "masker",
    [
        ALWAYS_HIGH,
        Masker(Hint(0.2), (0.2, 0.6), probability=0.5),
        Masker(Random(), (0.1, 0.9), probability=0.7),
        Masker(Block(), (0.1, 0.5), probability=1.0),
        Masker(High(), (0.2, 0.6), probability=0.0),
    ],
    ids=["high", "hint", "random", "block", "no-image-masked"],
)
def test_what_is_left_out_changes_no_loss_no_centre_and_no_gradient(
    masker: Masker, patch_weight: float, shared: bool, local: int
) -> None:
    made = distiller(masker, shared=shared, patch_weight=patch_weight)
    given = views(local=local)
    plain = plain_step(made, given)
    wanted_gradients = gradients(made.student, plain.cls + patch_weight * plain.patch)

    losses = made(given, NOW)
    got_gradients = gradients(made.student, losses.total)
    targets = made.targets(given, NOW)
    made.update_centres_(targets.mean_logits)

    assert_near(losses.cls, plain.cls.detach())
    assert_near(made.cls_centre.value, plain.cls_centre)
    assert torch.equal(targets.mask.hidden, torch.cat(plain.masks))
    assert Diagnostics.of(targets).hidden == pytest.approx(torch.cat(plain.masks).float().mean())
    if patch_weight:
        assert_near(losses.patch, plain.patch.detach())
        assert_near(made.patch_centre.value, plain.patch_centre)
    else:
        assert losses.patch == 0
    total = losses.cls + patch_weight * losses.patch
    assert_near(losses.total.detach(), total)
    for name, gradient in wanted_gradients.items():
        got = got_gradients.get(name, torch.zeros_like(gradient))
        torch.testing.assert_close(got, gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_block_masks_give_images_different_numbers_of_patches() -> None:
    made = distiller(Masker(Block(), (0.1, 0.5), probability=1.0))
    counts = torch.cat(plain_step(made, views()).masks).sum(1)
    assert len(counts.unique()) > 2, "or the test above says nothing about ragged counts"


def test_the_weight_of_a_patch_is_a_mean_over_its_image_then_over_images() -> None:
    mask = torch.tensor([[True, True, False, True], [False, False, True, False], [False] * 4])
    expected = torch.tensor([1 / 9, 1 / 9, 1 / 9, 1 / 3])
    torch.testing.assert_close(patch_weights(Mask.count(mask), torch.float32), expected)


@dataclass(frozen=True)
class Noted:
    """A strategy that keeps what it was asked."""

    inner: Strategy
    asked: list[tuple[int, list[int], Grid]] = field(default_factory=list)
    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        self.asked.append((draws.view, draws.images.tolist(), grid))
        return self.inner(attention, grid, draws)


def test_only_global_views_are_masked_and_by_the_place_of_the_image_in_the_batch() -> None:
    noted = Noted(High())
    made = distiller(Masker(noted, (0.3, 0.3), probability=1.0))
    made(views(images=2, first_image=6), NOW)
    assert noted.asked == [(0, [6, 7], (6, 6)), (1, [6, 7], (6, 6))]


@pytest.mark.parametrize("patch_weight", [1.0, 0.0])
def test_the_student_learns_and_its_mask_token_too_but_the_teacher_has_no_gradient(
    patch_weight: float,
) -> None:
    made = distiller(patch_weight=patch_weight)
    made(views(), NOW).total.backward()
    assert all(p.grad is None and not p.requires_grad for p in made.teacher.parameters())
    token = made.student.backbone.mask_token.grad
    assert token is not None
    assert token.abs().sum() > 0
    assert all(p.grad is not None for p in made.student.parameters())


@pytest.mark.parametrize("local", [0, 3])
def test_parts_that_are_differentiated_one_after_the_other_give_the_whole_gradient(
    local: int,
) -> None:
    together, apart = distiller(), distiller()
    given = views(local=local)
    whole_loss = together(given, NOW)
    whole_loss.total.backward()
    parts = []
    for part in apart.loss_parts(given, apart.targets(given, NOW), NOW):
        part.total.backward()  # before the next part is computed
        parts.append(part)
    assert len(parts) == (2 if local else 1)
    sums = torch.stack([part.total.detach() for part in parts]).sum()
    torch.testing.assert_close(sums, whole_loss.total.detach())
    pairs = zip(together.student.named_parameters(), apart.student.parameters(), strict=True)
    for (name, ours), theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6, msg=name)


def test_teacher_and_student_begin_alike_and_share_nothing() -> None:
    student = distiller().student
    made = Distiller(student, ALWAYS_HIGH, LossConfig(), drop_path=0.0, seed=0)
    pairs = list(zip(made.student.parameters(), made.teacher.parameters(), strict=True))
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert all(ours.data_ptr() != theirs.data_ptr() for ours, theirs in pairs)


@pytest.mark.parametrize("momentum", [0.0, 0.9, 1.0])
def test_the_teacher_is_the_moving_average_of_the_student(momentum: float) -> None:
    made = distiller()
    before = [p.clone() for p in made.teacher.parameters()]
    made.update_teacher_(momentum)
    student = made.student.parameters()
    for now, was, s in zip(made.teacher.parameters(), before, student, strict=True):
        torch.testing.assert_close(now, momentum * was + (1 - momentum) * s, rtol=1e-6, atol=1e-6)


def test_centres_move_once_for_all_micro_batches_of_a_step() -> None:
    at_once, in_parts = distiller(), distiller()
    was = in_parts.cls_centre.value.clone()
    means = [in_parts.targets(part, NOW).mean_logits for part in views(images=4).split(2)]
    assert torch.equal(in_parts.cls_centre.value, was), "targets of a step share one centre"
    at_once.update_centres_(at_once.targets(views(images=4), NOW).mean_logits)
    in_parts.update_centres_(MeanLogits.of_all(means))
    for name in ("cls_centre", "patch_centre"):
        ours, theirs = in_parts.get_buffer(f"{name}.value"), at_once.get_buffer(f"{name}.value")
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_step_that_reads_no_patches_leaves_their_centre_alone() -> None:
    made = distiller(patch_weight=0.0)
    was = made.patch_centre.value.clone()
    made.update_centres_(made.targets(views(), NOW).mean_logits)
    assert torch.equal(made.patch_centre.value, was)


def test_drop_path_is_for_the_student_and_drawn_by_step_image_and_view() -> None:
    without, made = distiller(), distiller(drop_path=0.5)
    plain, dropped = without(views(), NOW), made(views(), NOW)
    same = torch.equal(without.targets(views(), NOW).cls, made.targets(views(), NOW).cls)
    assert same, "the teacher drops nothing"
    assert plain.cls != dropped.cls
    assert made(views(), NOW).total == dropped.total
    assert made(views(first_image=1), NOW).total != dropped.total
    keep = made._drop_path(views(), NOW, first_view=0, count=2)
    assert keep is not None
    first, second = np.split(keep, 2, axis=2)
    assert not np.array_equal(first, second), "each view has its own draw"
    assert (keep[0] == 1).all(), "linear over depth from 0"


def test_diagnostics_are_measured_on_the_teachers_targets() -> None:
    made = distiller()
    found = Diagnostics.of(made.targets(views(), NOW))
    with torch.no_grad():
        scores = made.teacher.head(made.teacher.backbone(views().globals.flatten(0, 1)).cls)
        target = F.softmax((scores - made.cls_centre.value) / NOW.cls_temperature, dim=-1)
    entropy = -(target * target.log()).sum(1).mean()
    torch.testing.assert_close(found.teacher_entropy, entropy)
    mean = target.mean(0)
    torch.testing.assert_close(found.prototypes_used(), (-(mean * mean.log()).sum()).exp())


def test_sinkhorn_targets_share_the_prototypes_out_and_need_no_centre() -> None:
    made = distiller()
    made.loss = LossConfig(centring="sinkhorn")
    losses, targets = made(views(images=8), NOW), made.targets(views(images=8), NOW)
    made.cls_centre.value += 1 + torch.arange(PROTOTYPES)
    made.patch_centre.value += 1 + torch.arange(PROTOTYPES)
    assert made(views(images=8), NOW).total == losses.total
    assert losses.total.isfinite()
    assert Diagnostics.of(targets).prototypes_used() > 0.9 * PROTOTYPES
    assert targets.mean_logits.cls is None
    assert targets.mean_logits.patches is None
