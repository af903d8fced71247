"""Queries, keys and values that a layout keeps apart, as the one tensor of timm."""

from pathlib import Path

import torch
from torch import Tensor

from attmask.errors import UserError
from attmask.models.weights_file import refuse_unusable


def join_attention_(path: Path, tensors: dict[str, Tensor], parts: tuple[str, str, str]) -> None:
    """Join `attn.PART.weight` of each block to `attn.qkv.weight`, in place, and so their biases.

    Biases stay apart where a layout has none for keys.
    """
    query = f".attn.{parts[0]}."
    for name in [name for name in tensors if query in name]:
        block, _, kind = name.partition(query)
        names = [f"{block}.attn.{part}.{kind}" for part in parts]
        if kind == "bias" and names[1] not in tensors:
            continue
        lacking = [name for name in names if name not in tensors]
        if lacking:
            raise UserError(f"{path} has {name}, but no {lacking[0]}; download it again")
        three = [tensors.pop(name) for name in names]
        refuse_unusable(path, dict(zip(names, three, strict=True)))
        if len({part.shape for part in three}) > 1:
            shapes = ", ".join(str(tuple(part.shape)) for part in three)
            raise UserError(
                f"{path} has queries, keys and values of shapes {shapes} in {block}; wanted equal "
                "ones: networks that share keys between heads cannot be imported"
            )
        tensors[f"{block}.attn.qkv.{kind}"] = torch.cat(three)
