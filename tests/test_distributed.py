import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attmask import distributed
from attmask.errors import UserError
from attmask.losses import sinkhorn
from tests.groups import in_group

# Two real processes; each asserts what it must see and says which one it was.
WORKER = """
import sys, torch, torch.distributed as dist
from attmask import distributed
from attmask.losses import Centre, mean_of_all, sinkhorn

rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
assert distributed.world_size() == 2
assert distributed.rank() == rank
assert distributed.is_main() == (rank == 0)

tensor = torch.tensor([1.0, 10.0]) * (rank + 1)
assert distributed.average_(tensor) is tensor
assert tensor.tolist() == [1.5, 15.0]

scores = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
mine = scores[:6] if rank == 0 else scores[6:]
centre = Centre(6, 0.9)
centre.update_(mean_of_all([mine.mean(0)]))
torch.testing.assert_close(centre.value, 0.1 * scores.mean(0))

uneven = scores[:0] if rank == 0 else scores  # a process without a masked patch
together = distributed.logsumexp_over_rows(uneven)
torch.testing.assert_close(together, scores.logsumexp(0))
target = sinkhorn(mine, 0.1)
torch.save(target, f"{store}.{rank}")
dist.barrier()
dist.destroy_process_group()
print("rank", rank)
"""


def test_on_one_process_there_is_nothing_to_do() -> None:
    assert (distributed.world_size(), distributed.rank()) == (1, 0)
    assert distributed.is_main()
    tensor = torch.tensor([1.0, 2.0])
    assert distributed.average_(tensor) is tensor
    assert tensor.tolist() == [1.0, 2.0]
    values = torch.randn(5, 3)
    torch.testing.assert_close(distributed.logsumexp_over_rows(values), values.exp().sum(0).log())


def test_means_centres_and_balanced_targets_of_two_processes_are_those_of_the_whole_batch(
    tmp_path: Path,
) -> None:
    store = tmp_path / "store"
    source = Path(distributed.__file__).parents[1]
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(store)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    said = [worker.communicate(timeout=120)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], "\n".join(said)
    targets = torch.cat([torch.load(f"{store}.{rank}") for rank in range(2)])
    scores = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(targets, sinkhorn(scores, 0.1))


def gathered(rank: int) -> tuple[list[int], list[Tensor]]:
    """What each of three processes gathers: as many rows as its rank, the first has none."""
    rows = torch.arange(2.0 * rank).view(rank, 2) + 10 * rank
    several = (rows, rows.byte(), rows[:, 0], rows[:0])
    return distributed.sums(rank, 1, rank == 2), [distributed.gather_rows(each) for each in several]


def test_numbers_are_added_and_rows_gathered_in_the_order_of_the_processes(tmp_path: Path) -> None:
    assert distributed.sums(3, True) == [3, 1]
    rows = torch.randn(3, 2)
    assert distributed.gather_rows(rows) is rows
    for numbers, (matrix, whole, vector, nothing) in in_group(3, tmp_path, gathered):
        assert numbers == [3, 3, 1]
        assert matrix.tolist() == [[10, 11], [20, 21], [22, 23]]
        assert whole.dtype == torch.uint8
        assert torch.equal(whole, matrix.byte())
        assert vector.tolist() == [10, 20, 22]
        assert nothing.shape == (0, 2)


def test_each_process_of_a_machine_has_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert distributed.own_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    for name, value in (("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4"), ("LOCAL_RANK", "3")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 4)
    assert distributed.own_device(cpu) == cpu
    assert distributed.own_device(cuda) == torch.device("cuda", 3)
    with pytest.raises(UserError, match=r"train.device=cuda:1 is one device for 8 processes"):
        distributed.own_device(torch.device("cuda", 1))
    with pytest.raises(UserError, match=r"cannot train on mps together; use train.device=cpu"):
        distributed.own_device(torch.device("mps"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    wanted = r"4 processes were launched on this machine, which has 2 devices of cuda; launch as"
    with pytest.raises(UserError, match=wanted):
        distributed.own_device(cuda)
