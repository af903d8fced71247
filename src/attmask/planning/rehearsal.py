"""A training step on fake tensors: every shape and every operation of a step, no values.

Fake tensors of a GPU cannot be differentiated where there is none, so these are a CPU's. What
would be computed otherwise on the planned device is set: its number format and fused attention.
"""

from collections.abc import Callable

import torch
from torch._subclasses import FakeTensorMode

from attmask import distributed
from attmask.adaptation.trained import build_adapting_optimizer
from attmask.config import PretrainConfig
from attmask.data.views import GLOBAL_VIEWS, Views
from attmask.distill import Distiller
from attmask.engine import attach_fsdp_, mesh_of_all
from attmask.hardware import Format, Precision
from attmask.mask import Grid
from attmask.masking import Masker
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.planning.masks import CountedMasks
from attmask.schedules import Schedules
from attmask.step import train_step

_CPU = torch.device("cpu")

ChooseMasks = Callable[[Masker, int, Grid], CountedMasks]
"""A function from the masker, the images of a micro-batch and the grid to stated masks."""


def build_without_values(config: PretrainConfig) -> Distiller:
    """Student and teacher on PyTorch's meta device, which take no memory and no download."""
    own = config.backbone.model_copy(update={"pretrained": False})
    with torch.device("meta"):
        return build_distiller(config.model_copy(update={"backbone": own}))


class Rehearsal:
    """Networks, optimiser and batch of one process, on tensors without values."""

    def __init__(
        self,
        config: PretrainConfig,
        *,
        images: int,
        precision: Format,
        fused: bool | None,
        masks: ChooseMasks,
    ) -> None:
        """`images` are those of one process; `fused` is None where a CPU is planned.

        In a group of several processes the networks are sharded.
        """
        self.config, self.images = config, images
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.distiller = build_without_values(config)  # timm cannot build in the mode
        for network in (self.distiller.student, self.distiller.teacher):
            network.backbone.fuse_attention(fused)
        if config.train.recompute:
            self.distiller.student.backbone.recompute_blocks()
        size = config.views.global_size
        grid = self.distiller.student.backbone.grid(size, size)
        micro_batch = images // config.train.accumulate
        self.distiller.masker = masks(self.distiller.masker, micro_batch, grid)
        scaler = torch.amp.GradScaler("cpu", enabled=precision == "fp16")
        self.precision = Precision(precision, _CPU, scaler)
        # Outside of the mode, because the ranks of a mesh are values.
        mesh = mesh_of_all(_CPU) if distributed.world_size() > 1 else None
        with self.mode:
            self.distiller.to_empty(device=_CPU)
            if mesh is not None:
                attach_fsdp_(self.distiller, mesh)
            student = self.distiller.student
            self.optimizer = (
                build_optimizer(student, config.optim)
                if config.init is None and config.adapt.is_plain
                else build_adapting_optimizer(student, config.optim, config.adapt)
            )
            self._take_a_first_step()

    def _take_a_first_step(self) -> None:
        """Gradients and moments are there from the first step on."""
        for parameter in self.distiller.student.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.empty_like(parameter)
        self.optimizer.step()

    def step(self) -> None:
        """One training step, from the bytes of the views to the update; inside of `mode`."""
        config = self.config
        # At the end of training, where no layer is frozen any more.
        schedules = Schedules(
            config.schedule, steps_per_epoch=1, batch_size=config.train.batch_size
        )
        train_step(
            self.distiller,
            self.optimizer,
            self._views().normalise(config.data.mean, config.data.std),
            schedules.at(schedules.steps - 1),
            self.precision,
            accumulate=config.train.accumulate,
            clip=config.optim.clip,
        )

    def _views(self) -> Views:
        views, channels = self.config.views, self.config.data.channels
        large, small = (
            torch.empty(count, self.images, channels, side, side, dtype=torch.uint8)
            for count, side in (
                (GLOBAL_VIEWS, views.global_size),
                (views.local_crops, views.local_size),
            )
        )
        return Views(large, small)
