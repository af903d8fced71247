"""A tiny network to evaluate and a extractor to do it on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from attmask.data.config import DataConfig
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel, Prototypes
from attmask.hardware import Precision
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.models.heads import Head, HeadConfig

TINY = BackboneConfig(name="vit_tiny_patch16_224", width=24, depth=2, heads=2, patch_size=8)
CPU = torch.device("cpu")


def tiny_backbone(seed: int = 0) -> Backbone:
    """Weights far from their start, so that every one of them matters."""
    torch.manual_seed(seed)
    backbone = build_backbone(TINY, image_size=32, channels=3)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return backbone.eval().requires_grad_(False)


def tiny_model(seed: int = 0, name: str = "tiny", folder: Path | None = None) -> FrozenModel:
    """A network of width 24 for images of 32 pixels, with eight prototypes."""
    backbone = tiny_backbone(seed)
    head = Head(24, HeadConfig(prototypes=8, hidden=16, bottleneck=8)).requires_grad_(False)
    prototypes = Prototypes(head, torch.zeros(8), 0.07)
    return FrozenModel(name, backbone, 32, DataConfig(), prototypes, folder)


def with_classifier(
    model: FrozenModel, classes: Sequence[str], *, multi_label: bool = False, seed: int = 0
) -> FrozenModel:
    """The network with a random classifier of these classes on `[CLS]`, as if fine-tuned."""
    draw = torch.Generator().manual_seed(seed)
    classifier = LinearClassifier(
        weight=torch.randn(len(classes), model.backbone.width, generator=draw),
        bias=torch.randn(len(classes), generator=draw),
        classes=tuple(classes),
        readout=Embedding(),
        image_size=model.image_size,
        network=model.digest,
        multi_label=multi_label,
    )
    return replace(model, classifier=classifier)


def extractor_in(folder: Path, *, batch_size: int = 64, workers: int = 0) -> FeatureExtractor:
    """One that keeps its features below this folder."""
    return FeatureExtractor(
        device=CPU,
        precision=Precision.choose("fp32", CPU),
        cache=folder / "cache",
        batch_size=batch_size,
        workers=workers,
    )
