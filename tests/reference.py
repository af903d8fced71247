"""The reference values of tests/golden, and our network with the reference's weights."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.heads import HeadConfig
from attmask.models.network import Student

GOLDEN = Path(__file__).parent / "golden"
BACKBONE = BackboneConfig(
    name="vit_tiny_patch16_224", patch_size=8, width=48, depth=4, heads=3, positions="reference"
)
HEAD = HeadConfig(prototypes=96, hidden=64, bottleneck=32)
IMAGE_SIZE = 64


@cache
def arrays(name: str) -> dict[str, Any]:
    """All arrays of one golden file."""
    with np.load(GOLDEN / f"{name}.npz") as file:
        return {key: file[key] for key in file.files}


@cache
def tensors(name: str) -> dict[str, Tensor]:
    """The same as tensors, without those that hold names."""
    return {k: torch.from_numpy(v) for k, v in arrays(name).items() if v.dtype.kind != "U"}


def our_name(theirs: str) -> str:
    """What we call a parameter of the reference."""
    if theirs == "backbone.masked_embed":
        return "backbone.mask_token"
    theirs = theirs.replace("last_layer.weight_g", "last_layer.parametrizations.weight.original0")
    theirs = theirs.replace("last_layer.weight_v", "last_layer.parametrizations.weight.original1")
    return theirs.replace("backbone.", "backbone.vit.")


def weights(name: str, prefix: str = "w.") -> dict[str, Tensor]:
    """The weights below a prefix of a golden file, under our names."""
    return {
        our_name(key.removeprefix(prefix)): value
        for key, value in tensors(name).items()
        if key.startswith(prefix) and "last_layer2" not in key
    }


def reference_network() -> Student:
    """A network of the reference's sizes with its weights of `network.npz`."""
    backbone = build_backbone(BACKBONE, image_size=IMAGE_SIZE, channels=3)
    network = Student(backbone, HEAD)
    network.load_state_dict(weights("network"))
    return network
