import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, AutoModel, AutoModelForImageClassification

from attmask.data.synthetic import scene
from attmask.errors import UserError
from attmask.evaluation.features.transform import Transform
from attmask.exporting.as_huggingface import AsHuggingFace
from tests.exporting.networks import KINDS, Token, classified, exported, largest, network
from tests.real_data import FOLDER, needs

CLASSES = {
    "plain": "ViTModel",
    "layer scale": "Dinov2Model",
    "registers": "Dinov2WithRegistersModel",
    "dinov2 with registers": "Dinov2WithRegistersModel",
}


@pytest.mark.parametrize("kind", KINDS)
def test_transformers_computes_the_same_for_every_kind(kind: str, tmp_path: Path) -> None:
    checks = exported(AsHuggingFace(), network(tmp_path, **KINDS[kind]), tmp_path / "out")
    assert largest(checks) < 1e-5
    assert set(checks[0].differences) == {"cls", "patches", "attention"}
    model = AutoModel.from_pretrained(tmp_path / "out", local_files_only=True)
    assert type(model).__name__ == CLASSES.get(kind, "ViTModel")


def test_networks_with_registers_take_other_sizes(tmp_path: Path) -> None:
    checks = exported(AsHuggingFace(), network(tmp_path, reg_tokens=3), tmp_path / "out")
    assert len({(check.height, check.width) for check in checks}) == 3


@pytest.mark.parametrize("settings", [{}, {"init_values": 0.1}], ids=["ViT", "Dinov2"])
def test_networks_that_do_not_antialias_take_other_sizes(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    model = network(tmp_path, "no-antialias", **settings)
    checks = exported(AsHuggingFace(), model, tmp_path / "out")
    assert largest(checks) < 1e-5
    assert len({(check.height, check.width) for check in checks}) == 3


@pytest.mark.parametrize("positions", ["size", "reference"])
def test_another_size_has_the_positions_of_that_size(positions: str, tmp_path: Path) -> None:
    model = network(tmp_path, positions, init_values=0.1)
    assert largest(exported(AsHuggingFace(), model, tmp_path / "out", 48)) < 1e-5


def test_the_pooler_of_a_plain_network_gives_the_class_token(tmp_path: Path) -> None:
    exported(AsHuggingFace(), network(tmp_path), tmp_path / "out")
    model = AutoModel.from_pretrained(tmp_path / "out", local_files_only=True).eval()
    with torch.inference_mode():
        outputs = model(torch.randn(2, 3, 32, 32))
    assert torch.equal(outputs.pooler_output, outputs.last_hidden_state[:, 0])


@pytest.mark.parametrize("settings", [{}, {"init_values": 0.1}, {"reg_tokens": 2}])
@pytest.mark.parametrize("token", ["cls", "gap", "cls+gap"])
def test_classifiers_load_with_their_label_names(
    token: Token, settings: dict[str, Any], tmp_path: Path
) -> None:
    model = classified(network(tmp_path, **settings), token)
    checks = exported(AsHuggingFace(), model, tmp_path / "out")
    assert largest(checks) < 1e-5
    assert "logits" in checks[0].differences
    loaded = AutoModelForImageClassification.from_pretrained(
        tmp_path / "out", local_files_only=True
    )
    assert loaded.config.id2label[2] == 'a "quoted" | name'


def test_the_image_processor_shows_what_the_evaluation_shows(tmp_path: Path) -> None:
    model = network(tmp_path)
    exported(AsHuggingFace(), model, tmp_path / "out")
    processor = AutoImageProcessor.from_pretrained(tmp_path / "out", local_files_only=True)
    image = Image.fromarray(scene(0, seed=0, size=100).image[:80])
    found = processor(image, return_tensors="pt").pixel_values[0]
    wanted = Transform(32, model.data)(image)
    # transformers resizes with torchvision, we with PIL: they may round to neighbouring values.
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < 2.5 / 255 / 0.224
    assert (found - wanted).abs().mean() < 0.5 / 255 / 0.224


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"qk_norm": True}, "query and key norms"),
        ({"pre_norm": True}, "a norm before its blocks"),
    ],
)
def test_networks_without_a_class_are_refused(
    settings: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    from timm.models.vision_transformer import VisionTransformer

    from attmask.evaluation.model import FrozenModel
    from attmask.models.backbone import Backbone

    vit = VisionTransformer(
        img_size=32, patch_size=8, embed_dim=48, depth=1, num_heads=3, num_classes=0, **settings
    )
    model = FrozenModel("odd", Backbone(vit), 32, network(tmp_path).data)
    with pytest.raises(UserError, match=f"odd has {reason}, which neither ViTModel nor"):
        exported(AsHuggingFace(), model, tmp_path / "out")


def test_an_mlp_that_dinov2_cannot_state_is_refused(tmp_path: Path) -> None:
    model = network(tmp_path, reg_tokens=2, mlp_ratio=2.5)
    with pytest.raises(UserError, match="an MLP of width 120, and transformers' DINOv2 wants"):
        exported(AsHuggingFace(), model, tmp_path / "out")


def test_a_multi_label_classifier_says_so(tmp_path: Path) -> None:
    from dataclasses import replace

    model = classified(network(tmp_path), "cls")
    assert model.classifier is not None
    model = replace(model, classifier=replace(model.classifier, multi_label=True))
    exported(AsHuggingFace(), model, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"


@needs("photos")
def test_photographs_have_the_same_features(tmp_path: Path) -> None:
    model = network(tmp_path, img_size=64, init_values=0.1)
    exported(AsHuggingFace(), model, tmp_path / "out")
    loaded = AutoModel.from_pretrained(tmp_path / "out", local_files_only=True).eval()
    files = sorted((FOLDER / "photos").glob("*.JPEG"))[:4]
    images = torch.stack([Transform(64, model.data)(file) for file in files])
    with torch.inference_mode():
        wanted, found = model.backbone(images), loaded(images).last_hidden_state
    torch.testing.assert_close(found[:, 0], wanted.cls, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[:, 1:], wanted.patches, atol=1e-5, rtol=0)
