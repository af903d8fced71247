"""Full checkpoints as the authors' code writes them, made by PyTorch's own AdamW on its names."""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tests.reference import tensors

ARGUMENTS: dict[str, Any] = {"arch": "vit_tiny", "patch_size": 8, "out_dim": 96, "epochs": 3}


def parameters(prefix: str = "w.") -> dict[str, nn.Parameter]:
    """The weights of the trajectory as parameters, in the reference's order; a head counts once."""
    return {
        name.removeprefix(prefix): nn.Parameter(tensor.clone())
        for name, tensor in tensors("trajectory").items()
        if name.startswith(prefix) and "last_layer2" not in name
    }


def two_groups(named: dict[str, nn.Parameter]) -> list[dict[str, Any]]:
    """The groups of the reference: weight decay but for biases and vectors."""
    decayed = [p for n, p in named.items() if not (n.endswith(".bias") or p.dim() == 1)]
    others = [p for n, p in named.items() if n.endswith(".bias") or p.dim() == 1]
    return [{"params": decayed}, {"params": others, "weight_decay": 0.0}]


def checkpoint(epoch: object = 1, steps: int = 2, **replaced: Any) -> dict[str, Any]:
    """A checkpoint after some steps on random gradients; entries that are None are left out."""
    named = parameters()
    optimizer = torch.optim.AdamW(two_groups(named), lr=1e-3)
    draw = torch.Generator().manual_seed(0)
    for _ in range(steps):
        for parameter in named.values():
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        optimizer.step()
    weights = with_second_layer({name: p.detach().clone() for name, p in named.items()})
    teacher = {n: t + 0.5 for n, t in weights.items() if n != "backbone.masked_embed"}
    content: dict[str, Any] = {
        "student": {f"module.{name}": tensor for name, tensor in weights.items()},
        "teacher": teacher,
        "optimizer": optimizer.state_dict(),
        "epoch": epoch,
        "args": argparse.Namespace(**ARGUMENTS),
        "ibot_loss": {"center": torch.rand(1, 96), "center2": torch.rand(1, 1, 96)},
        **replaced,
    }
    return {name: value for name, value in content.items() if value is not None}


def with_second_layer(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights with the shared last layer under both of its names."""
    again = {n.replace("last_layer.", "last_layer2."): t for n, t in weights.items()}
    return {**weights, **{n: t for n, t in again.items() if "last_layer2" in n}}


def saved(folder: Path, content: object) -> Path:
    """The content as the file checkpoint.pth."""
    torch.save(content, folder / "checkpoint.pth")
    return folder / "checkpoint.pth"
