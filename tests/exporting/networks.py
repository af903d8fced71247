"""Small networks to export: files of weights of every kind that the importer reads."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer

from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.exporting.format import Format
from attmask.exporting.probes import Check, verify
from attmask.exporting.subject import Subject

Token = Literal["cls", "gap", "cls+gap"]
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no qkv bias": {"qkv_bias": False},
    "layer scale": {"init_values": 0.1},
    "registers": {"reg_tokens": 3},
    "dinov2 with registers": {"reg_tokens": 2, "init_values": 0.1, "no_embed_class": True},
    "class without position": {"no_embed_class": True},
    "another MLP": {"mlp_ratio": 3},
    "grey": {"in_chans": 1},
    "five channels": {"in_chans": 5},
}


def weights(folder: Path, positions: str = "size", **settings: Any) -> str:
    """A file of random weights, in the form that the loader takes."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        asked = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3}
        vit = VisionTransformer(**{**asked, "num_classes": 0, **settings})
        tensors = {
            name: tensor + 0.1 * torch.randn_like(tensor)
            for name, tensor in vit.state_dict().items()
        }
    save_file(tensors, folder / "vit.safetensors")
    return f"{folder / 'vit.safetensors'}@heads=3,positions={positions}"


def network(folder: Path, positions: str = "size", **settings: Any) -> FrozenModel:
    """A frozen network with random weights."""
    return load_model(weights(folder, positions, **settings), "small")


def classified(model: FrozenModel, token: Token) -> FrozenModel:
    """The network with a classifier of four classes on what the token names."""
    readout = Embedding(token=token, norm_gap=True)
    width = readout.width(model.backbone)
    draw = torch.Generator().manual_seed(1)
    weight, bias = torch.randn(4, width, generator=draw), torch.randn(4, generator=draw)
    names = ("cat", "dog", 'a "quoted" | name', "owl")
    return replace(
        model,
        classifier=LinearClassifier(weight, bias, names, readout, model.image_size, model.digest),
    )


def exported(
    form: Format, model: FrozenModel, folder: Path, size: int | None = None
) -> list[Check]:
    """Write a network in a format, and compare it on the probe images."""
    subject = Subject.of(model, size)
    folder.mkdir()
    form.write(subject, folder)
    other_sizes = form.takes_other_sizes(subject)
    return verify(subject, form.open(subject, folder), other_sizes=other_sizes)


def largest(checks: list[Check]) -> float:
    """The largest difference of all outputs and sizes."""
    return max(check.largest for check in checks)


def by_timm(folder: Path) -> VisionTransformer:
    """What timm makes of an export."""
    vit = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    assert isinstance(vit, VisionTransformer)
    return vit


def label_names(vit: VisionTransformer) -> list[str]:
    """The names of the classes that timm has read."""
    return list(vars(vit)["pretrained_cfg"]["label_names"])
