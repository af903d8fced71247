import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attmask.losses import (
    Centre,
    LossConfig,
    cls_loss,
    mean_of_all,
    patch_loss,
    sharpen,
    sinkhorn,
)
from attmask.schedules import Ramp
from tests.reference import tensors

# Three consecutive calls in epochs 0, 1, 2; B = 4 images, 3 local crops, 96 prototypes.
GOLDEN = tensors("loss")
TEMPERATURE = Ramp(0.04, 0.07, 3)
IMAGES = 4


def scores(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def probabilities(*shape: int, seed: int = 1) -> Tensor:
    return (3 * scores(*shape, seed=seed)).softmax(dim=-1)


def plain_patch_weights(mask: Tensor) -> Tensor:
    """Mean over the masked patches of each image, then over images and views, patch by patch."""
    return torch.tensor(
        [1 / (image.sum().item() * len(mask)) for image in mask for hidden in image if hidden]
    )


# --- against the reference


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def student_views(call: int) -> Tensor:
    both = torch.cat([GOLDEN[f"student_cls_{call}"], GOLDEN[f"student_local_{call}"]])
    views: Tensor = both.unflatten(0, (-1, IMAGES))
    return views


def test_three_calls_give_the_losses_and_centres_of_ibot() -> None:
    cls_centre, patch_centre = Centre(96, 0.9), Centre(96, 0.9)
    for call in range(3):
        teacher_cls, teacher_patch = GOLDEN[f"teacher_cls_{call}"], GOLDEN[f"teacher_patch_{call}"]
        temperature = TEMPERATURE(call)
        target = sharpen(teacher_cls, cls_centre.value, temperature).unflatten(0, (2, IMAGES))
        cls = cls_loss(student_views(call), target, 0.1)

        mask = GOLDEN[f"mask_{call}"].flatten(1)
        target = sharpen(teacher_patch[mask], patch_centre.value, temperature)
        guess = GOLDEN[f"student_patch_{call}"][mask]
        patch = patch_loss(guess, target, plain_patch_weights(mask), 0.1)

        cls_centre.update_(teacher_cls.mean(0))
        patch_centre.update_(teacher_patch.mean((0, 1)))
        close(cls, GOLDEN[f"loss_cls_{call}"])
        close(patch, GOLDEN[f"loss_patch_{call}"])
        close(cls + patch, GOLDEN[f"loss_{call}"])
        close(cls_centre.value, GOLDEN[f"center_cls_{call}"][0])
        close(patch_centre.value, GOLDEN[f"center_patch_{call}"][0, 0])


def test_three_calls_give_the_losses_and_centres_of_dino() -> None:
    centre = Centre(96, 0.9)
    for call in range(3):
        teacher = GOLDEN[f"teacher_cls_{call}"]
        target = sharpen(teacher, centre.value, TEMPERATURE(call)).unflatten(0, (2, IMAGES))
        loss = cls_loss(student_views(call), target, 0.1)
        centre.update_(teacher.mean(0))
        close(loss, GOLDEN[f"dino_loss_{call}"])
        close(centre.value, GOLDEN[f"dino_center_{call}"][0])


# --- the [CLS] loss


@given(
    views=st.integers(2, 6),
    images=st.integers(1, 4),
    temperature=st.sampled_from([0.05, 0.1, 1.0]),
    seed=st.integers(0, 100),
)
def test_cls_loss_is_the_mean_over_all_pairs_of_different_views(
    views: int, images: int, temperature: float, seed: int
) -> None:
    student, teacher = scores(views, images, 7, seed=seed), probabilities(2, images, 7, seed=seed)
    terms = [
        -(teacher[u, i] * (student[v, i] / temperature).log_softmax(0)).sum().item()
        for u in range(2)
        for v in range(views)
        for i in range(images)
        if u != v
    ]
    ours = cls_loss(student, teacher, temperature)
    assert ours.item() == pytest.approx(sum(terms) / len(terms), rel=1e-5)


def test_the_shares_of_some_views_add_up_to_the_loss_of_all() -> None:
    student, teacher = scores(6, 3, 7), probabilities(2, 3, 7)
    near = cls_loss(student[:2], teacher, 0.1, views=6)
    far = cls_loss(student[2:], teacher, 0.1, first_view=2, views=6)
    torch.testing.assert_close(near + far, cls_loss(student, teacher, 0.1))


def test_without_local_crops_each_view_is_held_against_the_other_alone() -> None:
    student, teacher = scores(2, 1, 5), probabilities(2, 1, 5)
    student[1] = 1000 * teacher[0]
    gradient = torch.autograd.grad(
        cls_loss(student.requires_grad_(), teacher * torch.tensor([1.0, 0.0])[:, None, None], 0.1),
        student,
    )[0]
    assert gradient[0].abs().max() == 0  # only the first teacher view speaks, to the second view
    assert gradient[1].abs().max() > 0


@pytest.mark.parametrize("kind", ["cls", "patch"])
def test_losses_are_in_full_precision_under_autocast(kind: str) -> None:
    student, teacher = scores(5, 8, 96), probabilities(2, 8, 96)

    def loss() -> Tensor:
        if kind == "cls":
            return cls_loss(student, teacher, 0.1)
        return patch_loss(student[0], teacher[0], torch.full((8,), 1 / 8), 0.1)

    plain = loss()
    with torch.autocast("cpu", torch.bfloat16):
        cast = loss()
    assert cast.dtype == torch.float32
    assert torch.equal(cast, plain)


def test_scores_in_half_precision_lose_nothing_more_on_the_way() -> None:
    student, teacher = scores(4, 3, 96).bfloat16(), probabilities(2, 3, 96)
    assert torch.equal(cls_loss(student, teacher, 0.1), cls_loss(student.float(), teacher, 0.1))
    target = sharpen(student, torch.zeros(96), 0.04)
    assert torch.equal(target, sharpen(student.float(), torch.zeros(96), 0.04))
    assert cls_loss(student.double(), teacher.double(), 0.1).dtype == torch.float64


# --- the patch loss


def test_patch_loss_is_a_weighted_sum_of_cross_entropies() -> None:
    student, teacher = scores(6, 9), probabilities(6, 9)
    weight = torch.tensor([0.5, 0.25, 0.25, 0.0, 1.0, 2.0])
    terms = [
        -w * (t * (s / 0.1).log_softmax(0)).sum()
        for s, t, w in zip(student, teacher, weight, strict=True)
    ]
    torch.testing.assert_close(patch_loss(student, teacher, weight, 0.1), torch.stack(terms).sum())


def test_without_masked_patches_the_patch_loss_is_zero_and_can_be_differentiated() -> None:
    student = torch.zeros(0, 9, requires_grad=True)
    loss = patch_loss(student, torch.zeros(0, 9), torch.zeros(0), 0.1)
    loss.backward()
    assert loss.item() == 0
    assert student.grad is not None


# --- the teacher's side


@given(temperature=st.floats(0.02, 1), seed=st.integers(0, 100))
def test_targets_are_probabilities_of_centred_scores(temperature: float, seed: int) -> None:
    raw, centre = scores(2, 3, 9, seed=seed), scores(9, seed=seed + 1)
    target = sharpen(raw, centre, temperature)
    torch.testing.assert_close(target.sum(-1), torch.ones(2, 3))
    plain = ((raw.double() - centre) / temperature).exp()
    plain = plain / plain.sum(-1, keepdim=True)
    torch.testing.assert_close(target, plain.float(), rtol=1e-4, atol=1e-6)


def test_a_lower_temperature_is_sharper() -> None:
    raw = scores(5, 20)
    entropies = [
        torch.special.entr(sharpen(raw, torch.zeros(20), t)).sum(-1).mean().item()
        for t in (0.04, 0.07, 1.0, 100.0)
    ]
    assert entropies == sorted(entropies)
    assert entropies[-1] == pytest.approx(math.log(20), rel=1e-3)


def test_a_centre_moves_by_one_part_in_ten_towards_the_mean() -> None:
    centre = Centre(3, momentum=0.9)
    for _ in range(2):
        centre.update_(torch.tensor([1.0, 2.0, -4.0]))
    torch.testing.assert_close(centre.value, 0.19 * torch.tensor([1.0, 2.0, -4.0]))


@given(parts=st.integers(1, 5), seed=st.integers(0, 50))
def test_micro_batches_move_a_centre_as_the_batch_would(parts: int, seed: int) -> None:
    raw = scores(parts * 4, 6, seed=seed)
    whole, split = Centre(6, 0.9), Centre(6, 0.9)
    for _ in range(2):
        whole.update_(raw.mean(0))
        split.update_(mean_of_all([part.mean(0) for part in raw.chunk(parts)]))
    torch.testing.assert_close(split.value, whole.value)


def test_only_the_value_of_a_centre_is_kept() -> None:
    assert list(Centre(4, 0.9).state_dict()) == ["value"]


# --- balanced targets


@given(temperature=st.floats(0.1, 1), seed=st.integers(0, 100))
def test_balanced_targets_are_probabilities(temperature: float, seed: int) -> None:
    target = sinkhorn(scores(12, 5, seed=seed), temperature)
    torch.testing.assert_close(target.sum(1), torch.ones(12))


def test_balanced_targets_share_the_prototypes_equally() -> None:
    raw = scores(40, 5) + torch.tensor([6.0, 0.0, 0.0, 0.0, 0.0])  # one prototype would win all
    assert sharpen(raw, torch.zeros(5), 0.5).sum(0)[0] > 39
    torch.testing.assert_close(
        sinkhorn(raw, 0.5, iterations=100).sum(0), torch.full((5,), 8.0), rtol=1e-3, atol=0
    )


def test_no_scores_balance_to_no_targets() -> None:
    assert sinkhorn(torch.zeros(0, 5), 0.1).shape == (0, 5)


def test_the_papers_objective_is_the_default() -> None:
    config = LossConfig()
    assert (config.patch_weight, config.student_temperature) == (1.0, 0.1)
    assert (config.centring, config.centre_momentum) == ("mean", 0.9)


def test_a_centre_does_not_move_in_a_step_that_is_not_finite() -> None:
    centre = Centre(3, momentum=0.9)
    centre.update_(torch.tensor([1.0, 2.0, 3.0]), torch.tensor(True))
    before = centre.value.clone()
    centre.update_(torch.tensor([1.0, torch.nan, 3.0]), torch.tensor(False))
    assert torch.equal(centre.value, before)
    plain = Centre(3, momentum=0.9)
    plain.update_(torch.tensor([1.0, 2.0, 3.0]))
    assert torch.equal(plain.value, before)
