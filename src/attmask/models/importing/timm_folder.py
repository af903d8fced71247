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


def timm_folder_weights(path: Path, stored: StoredWeights, config: Mapping[str, Any]) -> Weights:
    """The backbone of a folder whose config.json names an architecture of timm."""
    named, arguments = config.get("architecture"), config.get("model_args") or {}
    if not isinstance(named, str) or not timm.is_model(named) or not isinstance(arguments, Mapping):
        raise UserError(f"{path} is of no architecture that timm has: {name_of(str(named))}")
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
    is_size = isinstance(stated, list) and len(stated) == 3 and isinstance(stated[1], int)
    return stated[1] if is_size and isinstance(stated, list) and stated[1] > 0 else None


def _numbers(stated: object) -> tuple[float, ...] | None:
    if not isinstance(stated, list) or not all(isinstance(v, int | float) for v in stated):
        return None
    return tuple(map(float, stated))
