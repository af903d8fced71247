import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from attmask.sharded import Shards, read_into, read_whole, stored_names
from tests.groups import in_group

WHOLE: Mapping[str, Tensor] = {
    "even": torch.arange(24.0).view(6, 4),
    "uneven": torch.arange(15.0, dtype=torch.float64).view(5, 3),
    "one row": torch.ones(1, 7, dtype=torch.bfloat16),
    "short": torch.tensor([3.0, 4.0]),
}


def parts(world: int) -> dict[str, Tensor]:
    mesh = init_device_mesh("cpu", (world,))
    sharded = {name: distribute_tensor(t, mesh, [Shard(0)]) for name, t in WHOLE.items()}
    return {**sharded, "step": torch.tensor(5.0)}


def written(world: int, folder: Path) -> Path:
    place = folder / "files"
    place.mkdir(parents=True)

    def member(rank: int) -> str:
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        return Shards(parts(world), group).write(place).name

    names = in_group(world, folder / "writing", member)
    assert sorted(names) == sorted(path.name for path in place.iterdir())
    assert len(set(names)) == world, "each process writes a file of its own"
    return place


def test_whole_tensors_are_put_together_from_the_parts_of_three_processes(tmp_path: Path) -> None:
    place = written(3, tmp_path)
    found = read_whole(place, [path.name for path in place.iterdir()])
    assert found.pop("step") == 5
    assert found.keys() == WHOLE.keys() == set(stored_names(place)) - {"step"}
    for name, tensor in WHOLE.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_two_processes_read_their_parts_of_what_three_have_written(tmp_path: Path) -> None:
    place = written(3, tmp_path)

    def member(rank: int) -> bool:
        wanted = parts(2)
        empty = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read_into(place, empty)
        return all(torch.equal(own(empty[name]), own(wanted[name])) for name in wanted)

    assert in_group(2, tmp_path / "reading", member) == [True, True]


def own(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
