"""Backbones built again from what a checkpoint says of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.models.blueprint import Blueprint
from tests.evaluation.models import tiny_backbone

IMAGES = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def of_file(folder: Path) -> FrozenModel:
    weights = {name: t.contiguous() for name, t in tiny_backbone().vit.state_dict().items()}
    save_file(weights, folder / "weights.safetensors", {"heads": "3", "positions": "reference"})
    return load_model(f"{folder / 'weights.safetensors'}@heads=3")


def test_a_backbone_of_a_file_is_built_again_from_its_own_tensors(tmp_path: Path) -> None:
    model = of_file(tmp_path)
    said = Blueprint.model_validate(model.blueprint.model_dump(mode="json"))
    again = said.build(model.backbone.state_dict(), "here")
    assert again.heads == model.backbone.heads
    assert again.positions == model.backbone.positions
    larger = torch.randn(2, 3, 48, 64)
    for shown in (IMAGES, larger):
        assert torch.equal(again(shown).patches, model.backbone(shown).patches)


def test_a_backbone_of_timm_is_built_again_by_its_name() -> None:
    blueprint = Blueprint(name="vit_tiny_patch16_224", positions="size", image_size=224)
    first = blueprint.build(_weights("vit_tiny_patch16_224"), "here")
    assert (first.depth, first.width, first.patch_size) == (12, 192, 16)


def _weights(name: str) -> dict[str, torch.Tensor]:
    import timm

    vit: Any = timm.create_model(name, num_classes=0)
    named = {f"vit.{key}": tensor for key, tensor in vit.state_dict().items()}
    return {**named, "mask_token": torch.zeros(1, vit.embed_dim)}


def test_weights_that_do_not_fit_are_refused() -> None:
    blueprint = Blueprint(name="vit_tiny_patch16_224")
    weights = _weights("vit_tiny_patch16_224")
    del weights["vit.norm.weight"]
    with pytest.raises(RuntimeError, match=r"norm\.weight"):
        blueprint.build(weights, "here")
