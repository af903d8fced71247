"""The tensors of a sharded run in a checkpoint: each process writes and reads its own part.

PyTorch's distributed checkpoints do both, as safetensors files, whose parts any number of
processes can put together again.
"""

import os
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

Value = TypeVar("Value")

SHARD = "shard-"
"""How the names of PyTorch's files begin."""
_FILE_BYTES = 2**26


@dataclass(frozen=True)
class Shards:
    """This process's parts of sharded tensors, on the host."""

    tensors: Mapping[str, Tensor]
    group: dist.ProcessGroup
    """Of the threads that write, which must not meet the messages of the training."""
    rank: int
    processes: int
    """Known from the start: a thread may go on after the processes have parted."""

    @property
    def is_main(self) -> bool:
        """Whether this process writes the rest of the checkpoint."""
        return self.rank == 0

    def gather(self, value: Value) -> list[Value]:
        """The values of all processes that write, in the order of their ranks."""
        values: list[Value | None] = [None] * self.processes
        dist.all_gather_object(values, value, self.group)
        return [each for each in values if each is not None]

    def write(self, folder: Path) -> list[Path]:
        """Write them to files of this process, together with all other processes."""
        files = _in_files(self.tensors, self.processes * _FILE_BYTES)
        storage = HuggingFaceStorageWriter(str(folder), files, save_distributed=True)
        try:
            save(dict(self.tensors), storage_writer=storage, process_group=self.group)
        except CheckpointException as failed:  # in all processes, where one has failed
            rank, (fault, _) = min(failed.failures.items())
            number = fault.errno if isinstance(fault, OSError) else None
            why = os.strerror(number) if number else str(fault)
            raise OSError(number or 0, f"process {rank}: {why}") from failed
        own = f"{SHARD}{self.rank + 1:05d}-*.safetensors"
        return sorted(folder.glob(own))


def _in_files(tensors: Mapping[str, Tensor], most: int) -> dict[str, int]:
    """The number of the file of each tensor, from 1, with at most so many bytes of all processes.

    PyTorch holds a file in memory while it writes it.
    """
    files: dict[str, int] = {}
    number, held = 1, 0
    for name, tensor in tensors.items():
        if held and held + tensor.nbytes > most:
            number, held = number + 1, 0
        files[name] = number
        held += tensor.nbytes
    return files


def read_into(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill tensors, or the parts of them that this process holds, from a checkpoint."""
    storage = HuggingFaceStorageReader(str(folder))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # on purpose: no_dist
        load(dict(tensors), storage_reader=storage, no_dist=True)


def stored_names(folder: Path) -> list[str]:
    """The names of all tensors of a checkpoint."""
    return list(HuggingFaceStorageReader(str(folder)).read_metadata().state_dict_metadata)


def read_whole(folder: Path, files: Collection[str]) -> dict[str, Tensor]:
    """The whole tensors whose parts are in some files of a checkpoint."""
    about = HuggingFaceStorageReader(str(folder)).read_metadata()
    inside = {
        index.fqn
        for index, stored in about.storage_data.items()
        if Path(stored.relative_path).name in files
    }
    tensors = {
        name: torch.empty(stored.size, dtype=stored.properties.dtype)
        for name, stored in about.state_dict_metadata.items()
        if name in inside and isinstance(stored, TensorStorageMetadata)
    }
    read_into(folder, tensors)
    return tensors
