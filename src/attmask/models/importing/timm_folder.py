"""Directories in timm's format for the Hugging Face hub: an architecture and its weights."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from attmask.errors import UserError
from attmask.models.backbone import Backbone
from attmask.models.importing.plain import plain_weights
from attmask.models.importing.weights import EPS, Weights
from attmask.models.weights_file import StoredWeights, name_of

_ARGUMENTS = {
    "class_token",
    "depth",
    "dynamic_img_size",
    "embed_dim",
    "fc_norm",
    "global_pool",
    "img_size",
    "in_chans",
    "init_values",
    "mlp_ratio",
    "no_embed_class",
    "num_classes",
    "num_heads",
    "patch_size",
    "pos_embed",
    "qkv_bias",
    "reg_tokens",
}
"""Sizes and switches of a ViT; timm would also take paths of files to load."""
_MOST = 2**15


def timm_folder_weights(path: Path, stored: StoredWeights, config: Mapping[str, Any]) -> Weights:
    """The backbone of a folder whose config.json names an architecture of timm."""
    named, arguments = config.get("architecture"), config.get("model_args") or {}
    if not isinstance(named, str) or not timm.is_model(named) or not isinstance(arguments, Mapping):
        raise UserError(f"{path} is of no architecture that timm has: {name_of(str(named))}")
    for key, value in arguments.items():
        if key not in _ARGUMENTS or (isinstance(value, int) and not 0 <= value < _MOST):
            raise UserError(f"{path} says {name_of(key)}={str(value)[:40]}, which no plain ViT has")
    try:
        with torch.device("meta"):
            vit = timm.create_model(named, **{**arguments, "num_classes": 0})
    except (AssertionError, TypeError, RuntimeError, ValueError) as fault:
        why = next(iter(str(fault).splitlines()), "its arguments do not fit")
        raise UserError(f"timm cannot build the network of {path} ({why})") from fault
    weights = plain_weights(path, stored)
    known = config.get("pretrained_cfg")
    known = known if isinstance(known, Mapping) else {}
    weights = replace(
        weights,
        layout=f"timm {named}",
        image_size=_side(known.get("input_size")),
        mean=_numbers(known.get("mean")),
        std=_numbers(known.get("std")),
    )
    if not isinstance(vit, VisionTransformer):
        return weights  # its tensors tell whether it can be used
    backbone = Backbone(vit)
    if not all(type(getattr(block.mlp, "act", None)) is nn.GELU for block in backbone.blocks):
        raise UserError(f"{path} has another activation than GELU, which is not supported")
    eps = getattr(vit.norm, "eps", EPS)
    positions = weights.positions or "size"
    return replace(weights, heads=backbone.heads[0], eps=eps, positions=positions)


def _side(stated: object) -> int | None:
    side = stated[1] if isinstance(stated, list) and len(stated) == 3 else None
    return side if isinstance(side, int) and 0 < side < _MOST else None


def _numbers(stated: object) -> tuple[float, ...] | None:
    is_list = isinstance(stated, list) and all(isinstance(v, int | float) for v in stated)
    if not is_list or not isinstance(stated, list) or not all(abs(v) < _MOST for v in stated):
        return None
    return tuple(map(float, stated))
