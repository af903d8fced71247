"""DINOv3's own checkpoints: their names become those of timm's `Eva`."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from attmask.errors import UserError
from attmask.models.rotary_weights import TEMPERATURE

_NAMES = (
    (r"^storage_tokens$", "reg_token"),
    (r"\.ls([12])\.gamma$", r".gamma_\1"),
    (r"\.mlp\.w1\.", ".mlp.fc1_g."),
    (r"\.mlp\.w2\.", ".mlp.fc1_x."),
    (r"\.mlp\.w3\.", ".mlp.fc2."),
)
_PERIODS = "rope_embed.periods"
_MASK_TOKEN = "mask_token"
_LEFT_OUT = re.compile(r"(local_cls_norm|dino_head|ibot_head)\.|rope_embed\.|.*\.qkv\.bias_mask$")
_ROUNDING = 2**-7  # DINOv3 stores its periods in bfloat16


class RenamedDinov3(NamedTuple):
    """The backbone of a checkpoint in timm's names, and what else the checkpoint tells."""

    tensors: dict[str, Tensor]
    mask_token: Tensor | None
    heads: int | None
    """The number of heads, which the periods of the rotary positions tell."""
    left_out: tuple[str, ...]
    """The names of tensors that are not weights of the backbone."""


def is_dinov3(names: Mapping[str, Tensor]) -> bool:
    """Whether the tensors have the names of DINOv3's own checkpoints."""
    return _PERIODS in names or "storage_tokens" in names


def dinov3_in_timms_names(path: Path | str, stored: Mapping[str, Tensor]) -> RenamedDinov3:
    """The tensors of a checkpoint of DINOv3, without prefixes of wrappers, in timm's names.

    timm has no bias of keys: DINOv3 multiplies it by zero, the middle third of `bias_mask`.
    """
    tensors: dict[str, Tensor] = {}
    left_out: list[str] = []
    for name, tensor in stored.items():
        if _LEFT_OUT.match(name):
            left_out.append(name)
        elif name.endswith(".qkv.bias"):
            queries, keys, values = _bias(path, name, tensor, stored.get(f"{name}_mask"))
            if keys.any():
                raise UserError(
                    f"{path} has a bias of keys in {name}, which no DINOv3 has; wanted "
                    f"{name}_mask beside it, with zeros in its middle third"
                )
            attention = name.removesuffix("qkv.bias")
            tensors |= {f"{attention}q_bias": queries, f"{attention}v_bias": values}
        elif name != _MASK_TOKEN:
            tensors[_renamed(name)] = tensor
    heads = _heads(path, stored)
    return RenamedDinov3(tensors, stored.get(_MASK_TOKEN), heads, tuple(left_out))


def _renamed(name: str) -> str:
    for pattern, replacement in _NAMES:
        name = re.sub(pattern, replacement, name)
    return name


def _bias(
    path: Path | str, name: str, bias: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The biases of queries, keys and values."""
    if bias.dim() != 1 or len(bias) % 3 or (mask is not None and mask.shape != bias.shape):
        raise UserError(
            f"{path} has {name} of shape {tuple(bias.shape)}; wanted those of queries, keys and "
            "values, and a mask of the same shape"
        )
    masked = bias if mask is None else bias * mask.to(bias.dtype)
    queries, keys, values = masked.chunk(3)
    return queries, keys, values


def _heads(path: Path | str, stored: Mapping[str, Tensor]) -> int | None:
    """The number of heads, from the periods, which must be those that timm has."""
    if _PERIODS not in stored or "cls_token" not in stored:
        return None
    periods, width = stored[_PERIODS].flatten().float(), stored["cls_token"].shape[-1]
    count = len(periods)
    usual = TEMPERATURE ** (torch.arange(count) / max(count, 1))
    if not count or not torch.allclose(periods.cpu(), usual, rtol=_ROUNDING):
        raise UserError(
            f"{path} has rotary positions with other periods than {TEMPERATURE:.0f} to the power "
            "of 0 to 1, which is not supported; wanted a DINOv3"
        )
    if width % (4 * count):
        raise UserError(
            f"{path} has tokens of width {width}, which is not a multiple of 4 times its "
            f"{count} periods; wanted a whole DINOv3"
        )
    return int(width // (4 * count))
