"""The bytes of tensors that a real step takes on a CPU; run as a script in several processes."""

import sys
from functools import partial
from typing import Any

import torch
from torch._C._profiler import _EventType
from torch.profiler import ProfilerActivity, profile, record_function

from attmask import distributed
from attmask.config import PretrainConfig
from attmask.data.views import Views
from attmask.engine import attach_engine_
from attmask.hardware import Format, Precision
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.planning.masks import largest_masks
from attmask.schedules import Schedules
from attmask.step import train_step
from tests.planning.configs import small

CPU = torch.device("cpu")
SECOND = "second step"


def profiled_peak(
    config: PretrainConfig,
    precision: Format = "fp32",
    *,
    fused: bool | None = None,
    of_gloo: bool = False,
) -> int:
    """The most bytes of tensors that this process holds at once in the second step.

    Copies that gloo makes of what it sends, and NCCL does not, count only if they are asked for.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        two_steps(config, precision, fused=fused)
    events = list(profiler.profiler.kineto_results.experimental_event_tree())
    for event in events:  # the list grows while it is read
        events.extend(event.children)
    held, peak = 0, 0
    sizes: dict[int, int] = {}
    for event in sorted(events, key=lambda event: event.start_time_ns):
        if event.name == SECOND:
            peak = held
        if event.tag == _EventType.Allocation and (of_gloo or not _is_of_gloo(event.parent)):
            size, place = event.extra_fields.alloc_size, event.extra_fields.ptr
            # The profiler misses what threads of gloo free, until the place is used again.
            held -= sizes.pop(place, 0)
            if size > 0:
                sizes[place] = size
                held += size
            peak = max(peak, held)
    return peak


def _is_of_gloo(event: Any) -> bool:
    while event is not None:
        if event.name.startswith(("gloo:", "c10d::")):
            return True
        event = event.parent
    return False


def two_steps(config: PretrainConfig, precision: Format, *, fused: bool | None) -> None:
    """Two steps as in training, with the largest masks."""
    distiller, size = build_distiller(config), config.views.global_size
    images = config.train.batch_size // distributed.world_size()
    parts = config.train.accumulate
    grid = distiller.student.backbone.grid(size, size)
    distiller.masker = largest_masks(distiller.masker, images // parts, grid)
    for network in (distiller.student, distiller.teacher):
        network.backbone.fuse_attention(fused)
    if config.train.recompute:
        distiller.student.backbone.recompute_blocks()
    attach_engine_(distiller, config.train.sharding, CPU)
    optimizer = build_optimizer(distiller.student, config.optim)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
    schedules = Schedules(config.schedule, steps_per_epoch=1, batch_size=images)
    make = partial(torch.randint, 0, 256, dtype=torch.uint8)
    small_size, crops = config.views.local_size, config.views.local_crops
    for number in range(2):
        if number == 1:
            with record_function(SECOND):
                pass
        views = Views(
            make((2, images, 3, size, size)), make((crops, images, 3, small_size, small_size))
        ).normalise(config.data.mean, config.data.std)
        train_step(
            distiller,
            optimizer,
            views,
            schedules.at(schedules.steps - 1),
            Precision(precision, CPU, scaler),
            accumulate=parts,
            clip=config.optim.clip,
        )


if __name__ == "__main__":
    with distributed.processes(CPU):
        sys.stdout.write(f"peak {profiled_peak(small(*sys.argv[1:]))}\n")
