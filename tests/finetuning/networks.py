"""A small classifier and its settings, for tests of fine-tuning."""

import torch

from attmask.finetuning.classifier import Classifier
from attmask.finetuning.config import FinetuneConfig, NetworkConfig
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.recipe import recipe_for
from attmask.run_config import override

SIZE = 32


def small_backbone(depth: int = 3, seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    config = BackboneConfig(patch_size=8, width=24, depth=depth, heads=3, init_std=0.2)
    return build_backbone(config, image_size=SIZE, channels=3)


def small_classifier(classes: int = 5, depth: int = 3, **settings: object) -> Classifier:
    return Classifier(small_backbone(depth), classes, NetworkConfig(**settings))  # type: ignore[arg-type]


def recipe(name: str, *overrides: str) -> FinetuneConfig:
    return override(recipe_for(FinetuneConfig, name).config, overrides)
