"""The state of a training: copied to the host for a checkpoint, and restored from one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.optim import Optimizer

from attmask import distributed
from attmask.checkpoint import OPTIMIZER, WEIGHTS, Checkpoint
from attmask.optim import (
    empty_moments_,
    load_optimizer_tensors,
    moment_bytes,
    optimizer_tensors,
)
from attmask.saving import host_copies

if TYPE_CHECKING:
    from attmask.sharded import Shards


@dataclass(frozen=True)
class Snapshot:
    """Host copies of what this process writes: whole tensors by group, and its own shards."""

    tensors: dict[str, dict[str, Tensor]]
    shards: "Shards | None"


class TrainingState:
    """All tensors of what is trained, and the moments of the optimizer.

    `whole` has every tensor that is saved, `trained` is the part of it that the optimizer updates:
    a distiller and its student, for instance. Weights are always written whole by the main
    process, so that any tool can read them. A sharded optimizer is larger than all
    of them, so each process writes its own part of it.
    """

    def __init__(self, whole: nn.Module, trained: nn.Module, optimizer: Optimizer) -> None:
        self.whole, self.trained = whole, trained
        self.optimizer = optimizer
        self.is_sharded = any(map(distributed.is_sharded, trained.parameters()))
        # Threads that write must not meet the messages of the training.
        self._writers = distributed.host_group() if self.is_sharded else None

    @property
    def checkpoint_bytes(self) -> int:
        """The size of a checkpoint."""
        return checkpoint_bytes(self.whole, self.trained)

    def is_finite(self) -> bool:
        """Whether all weights and moments are, in all processes."""
        moments = optimizer_tensors(self.optimizer, self.trained)
        tensors = (*self.whole.state_dict().values(), *moments.values())
        own = map(distributed.own_part, tensors)
        finite = all(bool(tensor.isfinite().all()) for tensor in own)
        return distributed.all_agree(finite) if self.is_sharded else finite

    def snapshot(self) -> Snapshot:
        """Copy what this process writes; where the state is sharded, all processes take part."""
        moments = optimizer_tensors(self.optimizer, self.trained)
        if self._writers is not None:
            from attmask.sharded import Shards  # PyTorch's checkpoints take a second to import

            shards = Shards(
                host_copies(moments),
                self._writers,
                distributed.rank(),
                distributed.world_size(),
            )
            return Snapshot({WEIGHTS: self.whole_weights()}, shards)
        if not distributed.is_main():
            return Snapshot({}, None)
        return Snapshot({WEIGHTS: self.whole_weights(), OPTIMIZER: host_copies(moments)}, None)

    def whole_weights(self) -> dict[str, Tensor]:
        """Copies of all weights on the host of the main process; all processes take part."""
        weights = self.whole.state_dict()
        if self.is_sharded:
            return _gathered(weights)
        return host_copies(weights) if distributed.is_main() else {}

    @property
    def wanted_groups(self) -> tuple[str, ...]:
        """The groups of tensors that `restore` wants in memory.

        Several processes read them tensor by tensor: a machine may not hold as many copies.
        """
        return () if distributed.world_size() > 1 else (WEIGHTS, OPTIMIZER)

    def restore(self, found: Checkpoint) -> None:
        """Continue from a checkpoint, whoever wrote it."""
        if self.wanted_groups:
            self.whole.load_state_dict(dict(found.tensors[WEIGHTS]))
            load_optimizer_tensors(self.optimizer, self.trained, dict(found.tensors[OPTIMIZER]))
            return
        from attmask.sharded import read_into, stored_names

        assert found.path is not None
        empty_moments_(self.optimizer, self.trained, stored_names(found.path))
        moments = optimizer_tensors(self.optimizer, self.trained)
        read_into(found.path, {**self.whole.state_dict(), **moments})


def checkpoint_bytes(whole: nn.Module, trained: nn.Module) -> int:
    """All weights, and the moments of the optimizer."""
    weights = sum(tensor.nbytes for tensor in whole.state_dict().values())
    return int(weights) + moment_bytes(trained)


def _gathered(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors on the host of the main process, gathered one after the other."""
    gathered: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        whole = tensor.full_tensor() if distributed.is_sharded(tensor) else tensor
        if distributed.is_main():
            gathered |= host_copies({name: whole})
    return gathered
