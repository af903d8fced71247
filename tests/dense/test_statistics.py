"""Running statistics of batch norms: skipped steps leave them, and all processes share them."""

from pathlib import Path

import torch
from torch import Tensor, nn

from attmask.dense.statistics import Statistics, share_statistics_
from tests.groups import in_group


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))


def buffers(module: nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in module.buffers()]


def same(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_step_that_is_not_finite_leaves_the_statistics() -> None:
    module = network()
    module(torch.randn(4, 3))
    before, kept = buffers(module), Statistics(module)
    module(torch.full((4, 3), torch.nan))
    assert not same(buffers(module), before)
    kept.keep_if_(torch.tensor(False))
    assert same(buffers(module), before)


def test_a_finite_step_keeps_its_statistics() -> None:
    module = network()
    before, kept = buffers(module), Statistics(module)
    module(torch.randn(4, 3))
    after = buffers(module)
    kept.keep_if_(torch.tensor(True))
    assert same(buffers(module), after)
    kept.restore_()
    assert same(buffers(module), before)


def test_all_processes_get_the_statistics_of_the_main_one(tmp_path: Path) -> None:
    def work(rank: int) -> tuple[list[Tensor], list[Tensor]]:
        module = network()
        module(torch.randn(4, 3, generator=torch.Generator().manual_seed(rank)))
        before = buffers(module)
        share_statistics_(module)
        return before, buffers(module)

    (main_before, main), (other_before, other) = in_group(2, tmp_path, work)
    assert not same(main_before, other_before)
    assert same(main, main_before)
    assert same(other, main)
