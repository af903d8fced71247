"""The device, the number format and the cores are found out, and what is not there is refused."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import nn

from attmask.errors import UserError
from attmask.hardware import Precision, choose_device, cores, has_bf16

CPU = torch.device("cpu")
CPU_FLAGS = Path("/proc/cpuinfo")


@pytest.mark.parametrize(
    ("found", "chosen"), [(None, "cpu"), ("cuda", "cuda"), ("mps", "mps"), ("xpu", "xpu")]
)
def test_auto_is_an_accelerator_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch, found: str | None, chosen: str
) -> None:
    device = torch.device(found) if found else None
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: found is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
    assert choose_device("auto") == torch.device(chosen)


def test_the_device_asked_for_is_taken() -> None:
    assert choose_device("cpu") == CPU


@pytest.mark.parametrize("absent", ["cuda:99", "xpu:99", "hpu:99"])
def test_a_device_that_is_not_there_is_refused_with_what_to_do(absent: str) -> None:
    with pytest.raises(UserError, match=rf"device {absent} .*use auto or cpu"):
        choose_device(absent)


@pytest.mark.skipif(not CPU_FLAGS.exists(), reason="only Linux lists the processor's flags")
def test_bf16_is_there_if_the_processors_flags_say_so() -> None:
    flags = set(CPU_FLAGS.read_text().split())
    assert has_bf16(CPU) == bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def test_bf16_is_not_counted_on_where_nothing_is_known_of_it() -> None:
    assert not has_bf16(torch.device("mps"))


def test_only_the_cores_this_process_may_use_are_counted() -> None:
    if not hasattr(os, "sched_getaffinity"):
        assert cores() == os.cpu_count()
        return
    allowed = os.sched_getaffinity(0)
    assert cores() == len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.parametrize(
    ("processor", "chosen"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, "bf16"),  # AMD Zen 4
        ({"avx512_bf16": True, "amx_bf16": True}, "bf16"),  # Intel Sapphire Rapids
        ({"sve": True, "bf16": True}, "bf16"),  # Arm Neoverse V1
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, "fp32"),
        ({"avx2": True}, "fp32"),
    ],
)
def test_auto_is_bf16_where_the_processor_has_it_else_fp32(
    monkeypatch: pytest.MonkeyPatch, processor: dict[str, bool], chosen: str
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor)
    assert Precision.choose("auto", CPU).format == chosen


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (Precision.choose("fp32", CPU), torch.float32),
        (Precision.choose("bf16", CPU), torch.bfloat16),
        (Precision.choose("fp16", CPU), torch.float16),
    ],
    ids=["fp32", "bf16", "fp16"],
)
def test_forward_passes_run_in_the_format_and_only_fp16_is_scaled(
    precision: Precision, dtype: torch.dtype
) -> None:
    layer = nn.Linear(4, 4)
    with precision.autocast():
        assert layer(torch.ones(2, 4)).dtype == dtype
    assert layer(torch.ones(2, 4)).dtype == torch.float32
    assert precision.scaler.is_enabled() == (dtype == torch.float16)


@pytest.mark.parametrize("asked", ["fp32", "fp16"])
def test_gradients_are_true_ones_after_unscaling(asked: Literal["fp32", "fp16"]) -> None:
    precision = Precision.choose(asked, CPU)
    weight = nn.Parameter(torch.tensor([1.0, 2.0]))
    optimizer = torch.optim.SGD([weight], lr=1.0, fused=True)
    precision.backward((weight**2).sum())
    precision.unscale_(optimizer)
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0, 4.0]
    precision.step(optimizer, torch.tensor(True))
    assert weight.tolist() == [-1.0, -2.0]


def test_a_step_with_overflowed_gradients_is_left_out() -> None:
    precision = Precision.choose("fp16", CPU)
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.AdamW([weight], lr=1.0, fused=True)
    precision.backward((weight * torch.inf).sum())
    precision.unscale_(optimizer)
    precision.step(optimizer, torch.tensor(False))
    assert weight.tolist() == [1.0]
    assert precision.scaler.get_scale() == 2.0**15


def test_a_step_that_is_not_finite_changes_neither_weights_nor_moments() -> None:
    precision = Precision.choose("fp32", CPU)
    weight = nn.Parameter(torch.tensor([1.0]))
    optimizer = torch.optim.AdamW([weight], lr=1.0, fused=True)
    for finite in (True, False, True):
        weight.grad = torch.tensor([0.5 if finite else torch.nan])
        before = weight.tolist(), *(t.tolist() for t in optimizer.state[weight].values())
        precision.step(optimizer, torch.tensor(finite))
        after = weight.tolist(), *(t.tolist() for t in optimizer.state[weight].values())
        assert (after == before) == (not finite)
    assert optimizer.state[weight]["step"].item() == 2, "as if the step had not been"


def test_parts_are_computed_under_autocast_and_used_outside_of_it() -> None:
    def parts() -> Iterator[torch.dtype]:
        for _ in range(2):
            yield (torch.ones(2, 2) @ torch.ones(2, 2)).dtype

    used = [
        (part, torch.is_autocast_enabled("cpu"))
        for part in Precision.choose("bf16", CPU).cast(parts())
    ]
    assert used == [(torch.bfloat16, False)] * 2
