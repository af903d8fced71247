"""The peak memory of a step on one device: PyTorch's memory tracker on fake tensors."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from torch import Tensor, nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.distributed.fsdp import FSDPModule
from torch.utils.hooks import RemovableHandle

from attmask import distributed
from attmask.config import PretrainConfig
from attmask.hardware import Format
from attmask.planning.group import group_of
from attmask.planning.masks import largest_masks
from attmask.planning.rehearsal import ChooseMasks, Rehearsal


@dataclass(frozen=True)
class Memory:
    """The bytes of tensors at the peak of a step, on one device."""

    weights: int
    """Of student and teacher, with the centres; if sharded, those of this process, and the whole
    ones of the modules that are computed at the peak."""
    gradients: int
    """If sharded, the whole ones that parts of the loss have added up until they are shared."""
    moments: int
    """Those of AdamW."""
    activations: int
    """With the views, with what a kernel returns for a moment and what is being sent."""

    @property
    def total(self) -> int:
        """All of them together."""
        return self.fixed + self.activations

    @property
    def fixed(self) -> int:
        """What does not depend on the number of images."""
        return self.weights + self.gradients + self.moments


def peak_memory(
    config: PretrainConfig,
    *,
    processes: int,
    precision: Format,
    fused: bool | None,
    masks: ChooseMasks = largest_masks,
) -> Memory:
    """Count the tensors of one process in a step with the largest masks."""
    is_sharded = processes > 1 and config.train.sharding == "fsdp"
    with group_of(processes) if is_sharded else nullcontext():
        rehearsal = Rehearsal(
            config,
            images=config.train.batch_size // processes,
            precision=precision,
            fused=fused,
            masks=masks,
        )
        return track(rehearsal, keeps_gradients=processes > 1 and not is_sharded)


def track(rehearsal: Rehearsal, *, keeps_gradients: bool) -> Memory:
    """The memory at the peak of a rehearsed step.

    DDP's buckets are the memory of the gradients (`gradient_as_bucket_view`), so they are not
    held twice, but they are held all the time, also before a gradient is computed.
    """
    student, tracker = rehearsal.distiller.student, MemTracker()

    def note(parameter: Tensor) -> None:
        assert parameter.grad is not None
        tracker.track_external(parameter.grad)  # kept apart as "Other"

    with rehearsal.mode:
        tracker.track_external(rehearsal.distiller, rehearsal.optimizer)
        trained = [p for p in student.parameters() if p.requires_grad]
        hooks = [p.register_post_accumulate_grad_hook(note) for p in trained]
        with tracker:
            # Statistics of each module are slow, and refuse a network that is called twice.
            tracker._mod_tracker.clear_user_hooks()
            hooks += _track_gathered(rehearsal.distiller, tracker, note)
            rehearsal.step()
        for hook in hooks:
            hook.remove()
    peak: dict[str, int] = {}
    for of_device in tracker.get_tracker_snapshot("peak").values():
        for kind, size in of_device.items():
            name = getattr(kind, "value", kind)
            peak[name] = peak.get(name, 0) + size
    gradients = peak["Other"] + peak["Gradient"]
    weights = peak["Parameter"] + peak["Buffer"]
    every = sum(p.numel() * p.element_size() for p in trained)
    return Memory(
        weights=weights,
        gradients=every if keeps_gradients else gradients,
        moments=peak["Optstate"],
        activations=peak["Total"] - weights - gradients - peak["Optstate"],
    )


def _track_gathered(
    networks: nn.Module, tracker: MemTracker, note: Callable[[Tensor], None]
) -> list[RemovableHandle]:
    """Follow the whole parameters of sharded modules, which are there while one is computed."""
    hooks = []
    for module in networks.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
            tracker.track_external(module)
            gathered = (p for p in module.parameters() if not distributed.is_sharded(p))
            hooks += [
                p.register_post_accumulate_grad_hook(note) for p in gathered if p.requires_grad
            ]
            module.reshard()
    return hooks
