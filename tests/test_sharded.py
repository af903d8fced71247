import resource
import signal
import warnings
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import pytest
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

    def member(rank: int) -> list[str]:
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        return [path.name for path in Shards(parts(world), group, rank, world).write(place)]

    names = in_group(world, folder / "writing", member)
    assert sorted(chain(*names)) == sorted(path.name for path in place.iterdir())
    assert all(names), "each process writes files of its own"
    return place


def test_a_large_state_is_written_in_several_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attmask.sharded._FILE_BYTES", 30)
    place = written(3, tmp_path)
    files = [path.name for path in place.iterdir()]
    assert len(files) > 3
    found = read_whole(place, files)
    assert all(torch.equal(found[name], tensor) for name, tensor in WHOLE.items())


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


def test_a_disk_that_is_full_in_one_process_is_an_error_of_all(tmp_path: Path) -> None:
    place = tmp_path / "files"
    place.mkdir()

    def member(rank: int) -> str:
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        mesh = init_device_mesh("cpu", (2,))
        whole = distribute_tensor(torch.ones(2000), mesh, [Shard(0)])
        shards = Shards({"large": whole}, group, rank, 2)
        if rank == 1:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        try:
            shards.write(place)
        except OSError as fault:
            said = str(fault.strerror)
        else:
            said = "nothing"
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return said

    assert in_group(2, tmp_path / "writing", member) == ["process 1: File too large"] * 2
