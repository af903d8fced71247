"""Freed memory goes back to the system when a training holds a tenth more than at its start."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from attmask.heap import Heap, resident_bytes, shared_bytes
from tests.runs import environment


def trims(held: Sequence[int | None], lowest: int = 0) -> list[int]:
    """After which steps memory is returned, counted from 1, where so much is held after each.

    Not less than `lowest` is in use.
    """
    calls: list[int] = []
    now: int | None = None
    step = 0

    def trim() -> None:
        nonlocal now
        calls.append(step)
        now = lowest

    heap = Heap(resident=lambda: now, trim=trim)
    for amount in held:
        step, now = step + 1, amount
        heap.after_step()
    return calls


def test_memory_is_returned_where_it_grew_by_more_than_a_tenth() -> None:
    first = [100, 90, 120, 80, 100, 110]
    assert trims([*first, 120, 132, 133, 90, 140]) == [9, 11]


def test_memory_in_use_is_not_returned_again_and_again() -> None:
    assert trims([100] * 6 + [150] * 10 + [170], lowest=150) == [7, 17]


def test_what_is_allowed_is_known_after_the_first_steps() -> None:
    heap = Heap(resident=lambda: 1000, trim=lambda: None)
    assert heap.allowed == 0
    heap.after_step()
    assert heap.allowed == 1100


def test_the_first_steps_and_systems_that_do_not_say_are_left_alone() -> None:
    assert trims([1, 10, 100, 1000, 10_000, 100_000]) == []
    assert trims([None] * 20) == []


@pytest.mark.skipif(resident_bytes() is None, reason="the system does not say what is held")
def test_freed_blocks_between_held_ones_are_returned() -> None:
    program = """
import ctypes
from attmask.heap import resident_bytes, return_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
blocks = [libc.malloc(100_000) for _ in range(2000)]
for block in blocks:
    ctypes.memset(block, 1, 100_000)
for block in blocks[::2] + blocks[1:-1:2]:
    libc.free(block)  # the last one stays, so the heap cannot shrink from its end
before = resident_bytes()
return_freed_memory()
print(before - resident_bytes())
"""
    said = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=60,
    )
    assert int(said.stdout) > 150_000_000


@pytest.mark.skipif(resident_bytes() is None, reason="the system does not say what is held")
def test_own_and_shared_memory_are_what_the_system_calls_resident() -> None:
    own = resident_bytes()
    assert own is not None
    lines = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    assert own + shared_bytes() == pytest.approx(1024 * resident, rel=0.02)
    assert shared_bytes() > 20e6  # PyTorch's libraries alone
