"""Build student and teacher from a config."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from attmask.adaptation.start import StartingWeights
from attmask.adaptation.trained import choose_trained_
from attmask.config import PretrainConfig
from attmask.distill import Distiller
from attmask.errors import UserError
from attmask.models.backbone import build_backbone
from attmask.models.network import Student


def build_distiller(config: PretrainConfig, start: StartingWeights | None = None) -> Distiller:
    """Student and teacher with the initial weights of the config's seed.

    Both backbones have the weights of `start`, if these are given.
    """
    with torch.random.fork_rng(devices=[]), _fitting_into_memory():
        torch.manual_seed(config.seed)
        if start is None:
            backbone = build_backbone(
                config.backbone,
                image_size=config.views.global_size,
                channels=config.data.channels,
                layer=config.masking.layer,
            )
        else:
            backbone = start.build(config.masking.layer)
        choose_trained_(backbone, config.adapt)
        student = Student(backbone, config.head)
        if config.loss.patch_weight == 0 and student.own_patch_head is not None:
            student.own_patch_head.requires_grad_(False)  # nothing is learnt from patches
    masker = config.masking.build(config.seed)
    with _fitting_into_memory():
        return Distiller(
            student, masker, config.loss, drop_path=config.backbone.drop_path, seed=config.seed
        )


@contextmanager
def _fitting_into_memory() -> Iterator[None]:
    """Turn a failed allocation, which is a RuntimeError on the CPU, into one line."""
    try:
        yield
    except RuntimeError as fault:
        if "can't allocate memory" not in str(fault):
            raise
        raise UserError(
            "student and teacher do not fit into memory; lower backbone.width, backbone.depth or "
            "head.prototypes, or see `attmask plan`"
        ) from fault
