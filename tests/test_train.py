"""Six steps of the reference, micro-batches against a batch, and what the loop promises."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from attmask.config import PretrainConfig
from attmask.data.views import Views
from attmask.distill import Distiller, Losses
from attmask.hardware import Precision
from attmask.mask import Grid, Mask
from attmask.masking import Draws, High
from attmask.networks import build_distiller
from attmask.optim import OptimConfig, build_optimizer, optimizer_tensors
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules, StepSchedule
from attmask.step import compute_gradients, train_step, update_
from tests.golden_steps import SCHEDULES, golden_distiller, golden_step
from tests.reference import arrays, our_name, tensors, weights
from tests.runs import SHORT

CPU = torch.device("cpu")
FP32 = Precision.choose("fp32", CPU)
TINY = override(load_recipe("tiny"), SHORT)


# The reference's trajectory


@dataclass(frozen=True)
class HighNoted:
    """High that keeps its masks."""

    masks: list[Tensor] = field(default_factory=list)
    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        mask = High()(attention, grid, draws)
        self.masks.append(mask.hidden)
        return mask


@dataclass(frozen=True)
class Trajectory:
    """What six steps gave."""

    distiller: Distiller
    losses: list[Losses]
    rates: list[StepSchedule]
    masks: list[Tensor]
    norms: list[dict[str, float]]


@pytest.fixture(scope="module")
def trajectory() -> Trajectory:
    return run_trajectory(FP32)


def run_trajectory(precision: Precision, backend: str | None = None) -> Trajectory:
    """The reference's six steps in any number format, compiled if a backend is given."""
    noted = HighNoted()
    distiller = golden_distiller(noted)
    network = distiller.student
    if backend is not None:
        distiller.student.backbone.compile_blocks(backend)
        distiller.teacher.backbone.compile_blocks(backend)
    optimizer = build_optimizer(network, OptimConfig())
    norms: list[dict[str, float]] = []
    for name, parameter in network.named_parameters():
        parameter.register_post_accumulate_grad_hook(note_norm(name, norms))
    losses: list[Losses] = []
    rates, masks = [], []
    for step in range(6):
        norms.append({})
        noted.masks.clear()
        rates.append(SCHEDULES.at(step))
        losses += golden_step(distiller, optimizer, step, precision)
        masks.append(torch.cat(noted.masks))
    return Trajectory(distiller, losses, rates, masks, norms)


def note_norm(name: str, norms: list[dict[str, float]]) -> Callable[[Tensor], None]:
    def note(parameter: Tensor) -> None:
        assert parameter.grad is not None
        norms[-1][name] = float(parameter.grad.norm())

    return note


@pytest.mark.parametrize("step", range(6))
def test_masks_losses_and_rates_are_those_of_the_reference(
    trajectory: Trajectory, step: int
) -> None:
    golden = tensors("trajectory")
    assert torch.equal(trajectory.masks[step], golden[f"mask_{step}"])
    total, cls, patch, lr, weight_decay, momentum = golden["record"][step].tolist()
    losses, now = trajectory.losses[step], trajectory.rates[step]
    assert losses.total.item() == pytest.approx(total, abs=1e-4)
    assert float(losses.cls) == pytest.approx(cls, abs=1e-4)
    assert float(losses.patch) == pytest.approx(patch, abs=1e-4)
    assert (now.lr, now.weight_decay, now.momentum) == pytest.approx(
        (lr, weight_decay, momentum), abs=1e-12
    )


@pytest.mark.parametrize("step", range(6))
def test_gradient_norms_before_clipping_are_those_of_the_reference(
    trajectory: Trajectory, step: int
) -> None:
    names = [key.removeprefix("w.") for key in arrays("trajectory") if key.startswith("w.")]
    names = [our_name(name) for name in names if "last_layer2" not in name]
    golden = arrays("trajectory")[f"grad_norms_{step}"].tolist()
    for name, norm in zip(names, golden, strict=True):
        assert trajectory.norms[step][name] == pytest.approx(norm, rel=1e-3, abs=1e-6), name


@pytest.mark.parametrize("network", ["student", "teacher"])
def test_the_final_weights_are_those_of_the_reference(
    trajectory: Trajectory, network: Literal["student", "teacher"]
) -> None:
    ours = trajectory.distiller.get_submodule(network).state_dict()
    theirs = weights("trajectory", f"{network}_end.")
    # The reference's teacher has no mask token: it is never shown a mask.
    untold = {"backbone.mask_token"} if network == "teacher" else set()
    assert ours.keys() - untold == theirs.keys()
    for name, wanted in theirs.items():
        torch.testing.assert_close(ours[name], wanted, rtol=0, atol=1e-4, msg=name)


def test_the_final_centres_are_those_of_the_reference(trajectory: Trajectory) -> None:
    golden = tensors("trajectory")
    made = trajectory.distiller
    for centre, name in ((made.cls_centre, "center_cls"), (made.patch_centre, "center_patch")):
        torch.testing.assert_close(centre.value, golden[name].flatten(), rtol=0, atol=1e-5)


# One step


def noise(images: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Views:
    chance = torch.Generator().manual_seed(seed)
    whole = torch.randn(2, images, 3, 32, 32, generator=chance, dtype=torch.float64)
    local = torch.randn(2, images, 3, 16, 16, generator=chance, dtype=torch.float64)
    return Views(whole.to(dtype), local.to(dtype))


@dataclass(frozen=True)
class ThreeSteps:
    """Student, teacher and centres after three steps, and each weight's smallest gradient."""

    state: dict[str, Tensor]
    smallest: dict[str, Tensor]


def three_steps(config: PretrainConfig, dtype: torch.dtype, accumulate: int) -> ThreeSteps:
    distiller = build_distiller(config).to(dtype)
    optimizer = build_optimizer(distiller.student, config.optim)
    schedules = Schedules(config.schedule, steps_per_epoch=2, batch_size=8)
    smallest: dict[str, Tensor] = {}
    for step in range(3):
        train_step(
            distiller,
            optimizer,
            noise(8, dtype, seed=step),
            schedules.at(step),
            FP32,
            accumulate=accumulate,
            clip=config.optim.clip,
        )
        for name, parameter in distiller.student.named_parameters():
            if parameter.grad is not None:  # else frozen, and it does not move
                size = parameter.grad.abs()
                smallest[name] = torch.minimum(size, smallest.get(name, size))
    return ThreeSteps(distiller.state_dict(), smallest)


PARTS = pytest.mark.parametrize("parts", [2, 4])
STRATEGIES = pytest.mark.parametrize("strategy", ["high", "hint", "block"])


def with_drop_path(strategy: str) -> PretrainConfig:
    config = override(TINY, [f"masking.strategy={strategy}", "backbone.drop_path=0.3"])
    assert config.masking.probability < 1
    return config


@STRATEGIES
@PARTS
def test_micro_batches_change_nothing_but_memory(parts: int, strategy: str) -> None:
    config = with_drop_path(strategy)
    one, split = (three_steps(config, torch.float64, n).state for n in (1, parts))
    initial = build_distiller(config).to(torch.float64).state_dict()
    for name, wanted in one.items():
        torch.testing.assert_close(split[name], wanted, rtol=0, atol=1e-10, msg=name)
    moved = sum(not torch.equal(one[name], initial[name]) for name in initial)
    assert moved > 0.9 * len(initial), "or nothing was compared"


@STRATEGIES
@PARTS
def test_micro_batches_in_single_precision_differ_by_rounding_alone(
    parts: int, strategy: str
) -> None:
    """AdamW makes a whole step out of any gradient, also out of what rounding leaves of zero.

    So weights are left out whose true gradient, in double precision, is within the rounding of
    single precision (some 4e-7 here): the key part of the qkv bias, which shifts all scores of a
    query alike and so has none, and a stray few, whose number is bounded.
    """
    config = with_drop_path(strategy)
    one, split = (three_steps(config, torch.float32, n).state for n in (1, parts))
    true = three_steps(config, torch.float64, 1).smallest
    width = config.backbone.width or 0
    stray = 0
    for name, wanted in one.items():
        network, _, parameter = name.partition(".")
        sure = torch.ones_like(wanted, dtype=torch.bool)
        if network in ("student", "teacher") and parameter in true:
            sure = true[parameter] > 1e-6
        if network == "student" and name.endswith("qkv.bias"):
            assert not sure[width : 2 * width].any(), "the key part has no gradient"
            stray += int((~sure).sum()) - width
        elif network == "student":
            stray += int((~sure).sum())
        torch.testing.assert_close(split[name][sure], wanted[sure], rtol=0, atol=1e-5, msg=name)
    assert stray < 1e-3 * sum(smallest.numel() for smallest in true.values())


@STRATEGIES
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_micro_batches_in_single_precision_differ_in_the_key_bias_alone(
    seed: int, strategy: str
) -> None:
    """Where no stray weight has a gradient of nearly nothing, as in seed 0 one has (1e-8)."""
    config = override(with_drop_path(strategy), [f"seed={seed}"])
    one, two = (three_steps(config, torch.float32, n).state for n in (1, 2))
    width = config.backbone.width or 0
    for name, wanted in one.items():
        off = (two[name] - wanted).abs()
        if name.endswith("qkv.bias"):
            off[width : 2 * width] = 0
        assert off.max() < 1e-5, name


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_last_layer_stays_as_it_is_and_the_rest_moves(frozen: bool, shared: bool) -> None:
    config = override(TINY, [f"head.shared={str(shared).lower()}", "masking.probability=1"])
    distiller = build_distiller(config)
    optimizer = build_optimizer(distiller.student, config.optim)
    before = {n: p.clone() for n, p in distiller.student.named_parameters()}
    schedules = Schedules(config.schedule, steps_per_epoch=2, batch_size=8)
    train_step(distiller, optimizer, noise(4), schedules.at(0 if frozen else 2), FP32)
    last = {n for n in before if "last_layer" in n}
    assert len(last) == (2 if shared else 4)
    stayed = {n for n, p in distiller.student.named_parameters() if torch.equal(p, before[n])}
    assert stayed == (last if frozen else set())


def test_an_update_moves_teacher_and_centres_after_the_student() -> None:
    distiller = build_distiller(TINY)
    optimizer = build_optimizer(distiller.student, TINY.optim)
    before = [p.clone() for p in distiller.teacher.parameters()]
    now = Schedules(TINY.schedule, steps_per_epoch=2, batch_size=8).at(2)
    train_step(distiller, optimizer, noise(4), now, FP32)
    pairs = zip(distiller.teacher.parameters(), before, distiller.student.parameters(), strict=True)
    for teacher, was, student in pairs:
        torch.testing.assert_close(teacher, now.momentum * was + (1 - now.momentum) * student)
    assert distiller.cls_centre.value.abs().sum() > 0


def test_gradients_are_clipped_tensor_by_tensor() -> None:
    distiller = build_distiller(TINY)
    optimizer = build_optimizer(distiller.student, TINY.optim)
    now = Schedules(TINY.schedule, steps_per_epoch=2, batch_size=8).at(2)
    train_step(distiller, optimizer, noise(4), now, FP32, clip=1e-3)
    norms = [float(p.grad.norm()) for p in distiller.student.parameters() if p.grad is not None]
    assert max(norms) <= 1e-3 * (1 + 1e-6)
    assert sum(norm > 0.99e-3 for norm in norms) > 10, "all together would leave less for each"


def fp16(scale: float) -> Precision:
    """fp16 with a scaler that has come down to `scale` already (it begins at 2^16)."""
    precision = Precision.choose("fp16", CPU)
    precision.scaler.load_state_dict({**precision.scaler.state_dict(), "scale": scale})
    return precision


@pytest.mark.parametrize("half", [Precision.choose("bf16", CPU), fp16(64.0)], ids=["bf16", "fp16"])
def test_half_precision_steps_run_on_a_cpu_and_stay_near(half: Precision) -> None:
    results = []
    for precision in (FP32, half):
        distiller = build_distiller(TINY)
        optimizer = build_optimizer(distiller.student, TINY.optim)
        now = Schedules(TINY.schedule, steps_per_epoch=2, batch_size=8).at(2)
        before = [p.clone() for p in distiller.student.parameters()]
        (losses,) = train_step(distiller, optimizer, noise(4), now, precision, clip=3.0).losses
        assert all(p.dtype == torch.float32 for p in distiller.parameters())
        moved = zip(distiller.student.parameters(), before, strict=True)
        assert sum(not torch.equal(p, was) for p, was in moved) > 0.9 * len(before)
        results.append(losses.total.item())
    full, rounded = results
    assert rounded == pytest.approx(full, rel=2e-2)
    assert rounded != full


def test_an_fp16_step_that_overflows_is_left_out_and_the_scale_is_halved() -> None:
    precision = fp16(64.0)
    distiller = build_distiller(TINY)
    optimizer = build_optimizer(distiller.student, TINY.optim)
    schedules = Schedules(TINY.schedule, steps_per_epoch=2, batch_size=8)
    before = {n: p.clone() for n, p in distiller.student.named_parameters()}
    hook = distiller.student.backbone.mask_token.register_hook(lambda g: g + torch.inf)
    train_step(distiller, optimizer, noise(4), schedules.at(2), precision, clip=3.0)
    assert all(torch.equal(p, before[n]) for n, p in distiller.student.named_parameters())
    assert precision.scaler.get_scale() == 32.0
    hook.remove()
    train_step(distiller, optimizer, noise(4), schedules.at(2), precision, clip=3.0)
    assert any(not torch.equal(p, before[n]) for n, p in distiller.student.named_parameters())
    assert all(p.isfinite().all() for p in distiller.parameters())


@pytest.mark.parametrize("format", ["fp32", "bf16"])
@pytest.mark.parametrize("where", ["gradient", "loss"])
def test_a_step_that_is_not_finite_leaves_student_optimizer_and_centres_as_they_are(
    format: Literal["fp32", "bf16"], where: str
) -> None:
    precision = Precision.choose(format, CPU)
    distiller = build_distiller(TINY)
    optimizer = build_optimizer(distiller.student, TINY.optim)
    now = Schedules(TINY.schedule, steps_per_epoch=2, batch_size=8).at(2)
    train_step(distiller, optimizer, noise(4), now, precision, clip=3.0)
    before = {n: t.clone() for n, t in distiller.state_dict().items()}
    moments = {n: t.clone() for n, t in optimizer_tensors(optimizer, distiller.student).items()}
    report = compute_gradients(distiller, optimizer, noise(4), now, precision)
    token = distiller.student.backbone.mask_token
    if where == "gradient":
        assert token.grad is not None
        token.grad.fill_(torch.nan)
    else:
        report = replace(report, mean_loss=torch.tensor(torch.inf))
    update = update_(distiller, optimizer, report, now, precision, clip=3.0)
    assert not update.finite
    after = distiller.state_dict()
    moved = {n for n in before if not torch.equal(after[n], before[n])}
    assert all(name.startswith("teacher.") for name in moved), "it goes on towards the student"
    assert all(bool(tensor.isfinite().all()) for tensor in after.values())
    for name, moment in optimizer_tensors(optimizer, distiller.student).items():
        assert torch.equal(moment, moments[name]), name
    report = compute_gradients(distiller, optimizer, noise(4), now, precision)
    assert update_(distiller, optimizer, report, now, precision, clip=3.0).finite
    assert not torch.equal(token, before["student.backbone.mask_token"])
