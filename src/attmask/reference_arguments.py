"""Our settings as the arguments of the authors' training script, and what differs of them."""

import math
import re
from collections.abc import Mapping
from typing import Any

from attmask.config import PretrainConfig

_ARCH = re.compile(r"vit_(tiny|small|base|large)_")


def their_arguments(config: PretrainConfig) -> dict[str, Any]:
    """The arguments with which the authors' script would be started, as far as it has them."""
    plan, views, masking = config.schedule, config.views, config.masking
    known = _ARCH.match(config.backbone.name)
    return {
        "arch": f"vit_{known[1]}" if known else config.backbone.name,
        "patch_size": config.backbone.patch,
        "out_dim": config.head.prototypes,
        "patch_out_dim": config.head.prototypes,
        "shared_head": True,
        "shared_head_teacher": True,
        "norm_last_layer": False,
        "norm_in_head": None,
        "act_in_head": "gelu",
        "drop_path": config.backbone.drop_path,
        "momentum_teacher": plan.momentum,
        "warmup_teacher_temp": plan.cls_temperature[0],
        "teacher_temp": plan.cls_temperature[1],
        "warmup_teacher_patch_temp": plan.patch_temperature[0],
        "teacher_patch_temp": plan.patch_temperature[1],
        "warmup_teacher_temp_epochs": plan.cls_temperature_warmup_epochs,
        "optimizer": "adamw",
        "lr": plan.lr,
        "min_lr": plan.lr_final,
        "warmup_epochs": plan.lr_warmup_epochs,
        "weight_decay": plan.weight_decay,
        "weight_decay_end": plan.weight_decay_final,
        "clip_grad": config.optim.clip or 0.0,
        "freeze_last_layer": plan.freeze_last_layer_epochs,
        "epochs": plan.epochs,
        "batch_size_per_gpu": config.train.batch_size,
        "global_crops_number": 2,
        "global_crops_scale": (views.split_scale, 1.0),
        "local_crops_number": views.local_crops,
        "local_crops_scale": (views.local_scale_min, views.split_scale),
        "lambda1": 1.0,
        "lambda2": config.loss.patch_weight,
        "pred_shape": f"attmask_{masking.strategy}",
        "seed": config.seed,
    }


_NOT_COMPARED = {
    "arch",
    "norm_in_head",
    "batch_size_per_gpu",  # of one process, ours is of all
    "global_crops_scale",
    "local_crops_scale",
    "pred_shape",
    "seed",
    "patch_out_dim",
    "lambda1",
}


def different_arguments(config: PretrainConfig, stated: Mapping[str, Any]) -> list[str]:
    """The arguments of a checkpoint that differ from those of a config, as text."""
    return [
        f"{name} {stated[name]!s:.20}, here {here}"
        for name, here in their_arguments(config).items()
        if name in stated and name not in _NOT_COMPARED and not _same(stated[name], here)
    ]


def _same(there: object, here: object) -> bool:
    if isinstance(there, int | float) and isinstance(here, int | float):
        return math.isclose(there, here, rel_tol=1e-9)
    return there == here
