"""Build student and teacher from a config."""

import torch

from attmask.config import PretrainConfig
from attmask.distill import Distiller
from attmask.models.backbone import build_backbone
from attmask.models.network import Student


def build_distiller(config: PretrainConfig) -> Distiller:
    """Student and teacher with the initial weights of the config's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = build_backbone(
            config.backbone,
            image_size=config.views.global_size,
            channels=config.data.channels,
            layer=config.masking.layer,
        )
        student = Student(backbone, config.head)
        if config.loss.patch_weight == 0 and student.own_patch_head is not None:
            student.own_patch_head.requires_grad_(False)  # nothing is learnt from patches
    masker = config.masking.build(config.seed)
    return Distiller(
        student, masker, config.loss, drop_path=config.backbone.drop_path, seed=config.seed
    )
