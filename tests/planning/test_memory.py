"""The planned memory is what PyTorch's profiler counts in a real step on a CPU."""

from functools import cache, partial

import pytest
import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from attmask.config import PretrainConfig
from attmask.data.views import Views
from attmask.hardware import Format, Precision
from attmask.networks import build_distiller
from attmask.optim import build_optimizer, moment_bytes
from attmask.planning.masks import largest_masks
from attmask.planning.memory import Memory, peak_memory, track
from attmask.planning.rehearsal import Rehearsal
from attmask.schedules import Schedules
from attmask.step import train_step
from tests.planning.configs import small

CPU = torch.device("cpu")
SECOND = "second step"


def profiled_peak(config: PretrainConfig, precision: Format, *, fused: bool | None) -> int:
    """The most bytes of tensors that are held at once in the second step."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        two_steps(config, precision, fused=fused)
    events = list(profiler.profiler.kineto_results.experimental_event_tree())
    for event in events:  # the list grows while it is read
        events.extend(event.children)
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_time_ns):
        if event.name == SECOND:
            peak = held
        if event.tag == _EventType.Allocation:
            held += event.extra_fields.alloc_size
            peak = max(peak, held)
    return peak


def two_steps(config: PretrainConfig, precision: Format, *, fused: bool | None) -> None:
    """Two steps as in training, with the largest masks."""
    distiller, size = build_distiller(config), config.views.global_size
    images, parts = config.train.batch_size, config.train.accumulate
    grid = distiller.student.backbone.grid(size, size)
    distiller.masker = largest_masks(distiller.masker, images // parts, grid)
    for network in (distiller.student, distiller.teacher):
        network.backbone.fuse_attention(fused)
    if config.train.recompute:
        distiller.student.backbone.recompute_blocks()
    optimizer = build_optimizer(distiller.student, config.optim)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    schedules = Schedules(config.schedule, steps_per_epoch=1, batch_size=images)
    make = partial(torch.randint, 0, 256, dtype=torch.uint8)
    small_size, crops = config.views.local_size, config.views.local_crops
    for number in range(2):
        if number == 1:
            with record_function(SECOND):
                pass
        views = Views(
            make((2, images, 3, size, size)), make((crops, images, 3, small_size, small_size))
        ).normalise(config.data.mean, config.data.std)
        train_step(
            distiller,
            optimizer,
            views,
            schedules.at(schedules.steps - 1),
            Precision(precision, CPU, scaler),
            accumulate=parts,
            clip=config.optim.clip,
        )


@cache
def planned(variant: str, processes: int = 1, precision: Format = "fp32") -> Memory:
    """The plan of a variant, made once for all tests."""
    return peak_memory(small(variant), processes=processes, precision=precision, fused=None)


@pytest.mark.parametrize(
    "variant",
    [
        "ibot",
        "dino",
        "accumulate",
        "recompute",
        pytest.param("sinkhorn", marks=pytest.mark.slow),
        pytest.param("no local crops", marks=pytest.mark.slow),
        pytest.param("two heads", marks=pytest.mark.slow),
    ],
)
def test_the_planned_memory_is_that_of_a_real_step(variant: str) -> None:
    measured = profiled_peak(small(variant), "fp32", fused=None)
    assert planned(variant).total == pytest.approx(measured, rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
def test_the_planned_memory_in_bf16_is_that_of_a_real_step(fused: bool) -> None:
    config = small("ibot")
    by_plan = peak_memory(config, processes=1, precision="bf16", fused=fused)
    assert by_plan.total == pytest.approx(profiled_peak(config, "bf16", fused=fused), rel=0.03)


def test_weights_gradients_and_moments_are_those_of_the_network() -> None:
    distiller, memory = build_distiller(small("ibot")), planned("ibot")
    trained = list(distiller.student.parameters())
    assert memory.weights == sum(tensor.nbytes for tensor in distiller.state_dict().values())
    assert memory.gradients == pytest.approx(sum(p.nbytes for p in trained), rel=0.001)
    # AdamW counts its steps for each parameter, in fp32.
    assert memory.moments == moment_bytes(distiller.student) + 4 * len(trained)


def test_more_processes_hold_fewer_activations_and_whole_weights() -> None:
    one, four = planned("ibot"), planned("ibot", processes=4)
    assert (four.weights, four.moments) == (one.weights, one.moments)
    assert four.activations == pytest.approx(one.activations / 4, rel=0.15)


def test_ddp_holds_all_gradients_before_they_are_computed() -> None:
    config = small("no local crops")  # where some come after the peak
    rehearsal = Rehearsal(config, images=8, precision="fp32", fused=None, masks=largest_masks)
    trained = sum(p.nbytes for p in rehearsal.distiller.student.parameters())
    assert track(rehearsal, keeps_gradients=False).gradients < trained
    assert track(rehearsal, keeps_gradients=True).gradients == trained


def test_micro_batches_and_recomputing_need_less_memory() -> None:
    whole = planned("ibot").activations
    assert planned("accumulate").activations < 0.65 * whole
    assert planned("recompute").activations < 0.9 * whole


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_needs_less_memory(precision: Format) -> None:
    assert planned("ibot", precision=precision).total < planned("ibot").total
