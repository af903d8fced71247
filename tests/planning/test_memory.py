"""The planned memory is what PyTorch's profiler counts in a real step on a CPU."""

import re
from functools import cache

import pytest
import torch.distributed as dist

from attmask.hardware import Format
from attmask.networks import build_distiller
from attmask.optim import moment_bytes
from attmask.planning.masks import largest_masks
from attmask.planning.memory import Memory, peak_memory, track
from attmask.planning.rehearsal import Rehearsal
from tests.planning.configs import small
from tests.planning.profiled import profiled_peak
from tests.processes import ROOT, run_group

LARGE = (
    "backbone.name=vit_tiny_patch16_224",
    "backbone.width=null",
    "backbone.heads=null",
    "backbone.patch_size=16",
    "backbone.depth=4",
    "train.batch_size=8",
    "views.global_size=224",
    "views.local_size=96",
    "views.local_crops=2",
    "head.prototypes=8192",
    "head.hidden=2048",
    "head.bottleneck=256",
)


@cache
def planned(variant: str, processes: int = 1, precision: Format = "fp32") -> Memory:
    """The plan of a variant, made once for all tests."""
    return peak_memory(small(variant), processes=processes, precision=precision, fused=None)


@pytest.mark.parametrize(
    "variant",
    [
        "ibot",
        pytest.param("accumulate", marks=pytest.mark.slow),
        pytest.param("dino", marks=pytest.mark.slow),
        pytest.param("recompute", marks=pytest.mark.slow),
        pytest.param("sinkhorn", marks=pytest.mark.slow),
        pytest.param("no local crops", marks=pytest.mark.slow),
        pytest.param("two heads", marks=pytest.mark.slow),
    ],
)
def test_the_planned_memory_is_that_of_a_real_step(variant: str) -> None:
    measured = profiled_peak(small(variant))
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


@pytest.mark.slow
def test_micro_batches_and_recomputing_need_less_memory() -> None:
    whole = planned("ibot").activations
    assert planned("accumulate").activations < 0.65 * whole
    assert planned("recompute").activations < 0.9 * whole


def test_a_sharded_process_holds_its_part_of_weights_and_moments() -> None:
    one, four = planned("ibot"), planned("sharded", processes=4)
    # The first process holds whole what has one row, such as the position embedding.
    assert one.moments / 4 < four.moments < 1.06 * one.moments / 4
    # Its part, and what is gathered at the peak, which is less than one of the two networks.
    assert 0.25 * one.weights < four.weights < 0.25 * one.weights + 0.5 * one.weights
    # All of those of local crops are there when those of global crops are added.
    assert four.gradients == pytest.approx(one.gradients, rel=0.01)
    assert not dist.is_initialized()


@pytest.mark.slow
def test_one_process_shards_nothing() -> None:
    assert planned("sharded") == planned("ibot")


@pytest.mark.slow
@pytest.mark.parametrize("more", [(), ("train.accumulate=2",), LARGE], ids=["", "parts", "vit"])
def test_the_planned_memory_of_a_sharded_process_is_that_of_a_real_one(
    more: tuple[str, ...],
) -> None:
    script = ROOT / "tests" / "planning" / "profiled.py"
    said = run_group([script, "sharded", *more], 2)
    found = [re.search(r"^peak (\d+)$", text, re.MULTILINE) for text in said]
    peaks = [int(match[1]) for match in found if match is not None]
    assert len(peaks) == 2
    by_plan = peak_memory(small("sharded", *more), processes=2, precision="fp32", fused=None)
    assert by_plan.total == pytest.approx(max(peaks), rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_half_precision_needs_less_memory(precision: Format) -> None:
    assert planned("ibot", precision=precision).total < planned("ibot").total
