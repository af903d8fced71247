"""oneDNN keeps a bounded number of compiled kernels, however many sizes masks have."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attmask.hardware import has_bf16
from attmask.primitives import CAPACITY, VARIABLES
from tests.runs import environment

TELL = f"import os, attmask; print(*(os.environ.get(name) for name in {VARIABLES}))"
CONVOLVE = """
import torch
import attmask
with torch.no_grad():
    for width in [*range(8, 8 + {shapes}), 8]:
        torch.conv2d(torch.ones(2, 3, 8, width), torch.ones(8, 3, 3, 3))
"""
needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch was built without oneDNN"
)


def _run(*words: str, **variables: str) -> str:
    """What a Python process prints whose environment sets only these capacities."""
    inherited = {k: v for k, v in environment().items() if k not in VARIABLES}
    made = subprocess.run(
        [sys.executable, *words],
        env={**inherited, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return made.stdout


def test_importing_attmask_bounds_the_cache() -> None:
    assert _run("-c", TELL).split() == [str(CAPACITY), "None"]


@pytest.mark.parametrize("name", VARIABLES)
def test_a_capacity_that_the_user_has_set_stays(name: str) -> None:
    told = _run("-c", TELL, **{name: "33"}).split()
    assert dict(zip(VARIABLES, told, strict=True)) == {
        **dict.fromkeys(VARIABLES, "None"),
        name: "33",
    }


@needs_onednn
def test_onednn_forgets_the_oldest_of_many_shapes_although_pytorch_was_imported_first() -> None:
    said = _run("-c", CONVOLVE.format(shapes=CAPACITY + 8), ONEDNN_VERBOSE="2")
    created = [line for line in said.splitlines() if "create:cache_miss,cpu,convolution" in line]
    assert len(created) == CAPACITY + 9


@needs_onednn
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bf16", "onednn"])
def test_memory_stays_when_masks_of_many_sizes_have_come(kind: str) -> None:
    if kind == "bf16" and not has_bf16(torch.device("cpu")):
        pytest.skip("this CPU has no bf16, so oneDNN has no kernels for it")
    script = Path(__file__).with_name("primitive_steps.py")
    # PyTorch has a cache of its own around the call that `onednn` makes, which training never uses.
    # Six steps are what `attmask inspect` times.
    peaks = _run(str(script), kind, "6", "90", LRU_CACHE_CAPACITY="1").split()
    forecast, peak = map(int, peaks)
    assert peak <= 1.15 * forecast
