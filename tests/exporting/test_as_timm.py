import json
from pathlib import Path

import pytest
import timm
import torch
from PIL import Image
from timm.models.vision_transformer import VisionTransformer

from attmask.data.synthetic import scene
from attmask.errors import UserError
from attmask.evaluation.features.transform import Transform
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.exporting.as_timm import AsTimm
from attmask.models.backbone import Backbone
from tests.exporting.networks import (
    KINDS,
    Token,
    by_timm,
    classified,
    exported,
    label_names,
    largest,
    network,
)
from tests.real_data import FOLDER, needs


@pytest.mark.parametrize("kind", KINDS)
def test_timm_computes_the_same_for_every_kind_of_network(kind: str, tmp_path: Path) -> None:
    checks = exported(AsTimm(), network(tmp_path, **KINDS[kind]), tmp_path / "out")
    assert largest(checks) < 1e-5
    assert len({(check.height, check.width) for check in checks}) == 3


def test_positions_of_the_reference_are_stored_for_one_size(tmp_path: Path) -> None:
    model = network(tmp_path, "reference")
    checks = exported(AsTimm(), model, tmp_path / "out", 48)
    assert {(check.height, check.width) for check in checks} == {(48, 48)}
    vit = by_timm(tmp_path / "out")
    with pytest.raises(AssertionError):
        vit(torch.zeros(1, 3, 32, 32))


@pytest.mark.parametrize("token", ["cls", "gap"])
def test_a_classifier_is_the_head_with_its_label_names(token: Token, tmp_path: Path) -> None:
    model = classified(network(tmp_path), token)
    checks = exported(AsTimm(), model, tmp_path / "out")
    assert largest(checks) < 1e-5
    assert all("logits" in check.differences for check in checks)
    assert model.classifier is not None
    vit = by_timm(tmp_path / "out")
    assert vit.num_classes == 4
    assert tuple(label_names(vit)) == model.classifier.classes


def test_a_classifier_of_both_tokens_is_refused(tmp_path: Path) -> None:
    model = classified(network(tmp_path), "cls+gap")
    with pytest.raises(UserError, match="no network of timm does; use --format hf"):
        exported(AsTimm(), model, tmp_path / "out")


def test_timms_transform_is_that_of_the_evaluation(tmp_path: Path) -> None:
    model = network(tmp_path)
    exported(AsTimm(), model, tmp_path / "out")
    vit = by_timm(tmp_path / "out")
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(vit))
    image = Image.fromarray(scene(0, seed=0, size=100).image[:80])
    torch.testing.assert_close(transform(image), Transform(32, model.data)(image))


def test_the_file_of_an_export_can_be_imported_again(tmp_path: Path) -> None:
    model = network(tmp_path, init_values=0.1, reg_tokens=3)
    exported(AsTimm(), model, tmp_path / "out")
    again = load_model(f"{tmp_path / 'out' / 'model.safetensors'}@heads=3,positions=size")
    for name, tensor in model.backbone.vit.state_dict().items():
        assert torch.equal(again.backbone.vit.state_dict()[name], tensor)


def test_a_network_of_timm_keeps_its_name(tmp_path: Path) -> None:
    vit = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=0)
    assert isinstance(vit, VisionTransformer)
    plain = network(tmp_path)
    model = FrozenModel("tiny", Backbone(vit).eval(), 32, plain.data)
    assert largest(exported(AsTimm(), model, tmp_path / "out")) < 1e-5
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architecture"] == "vit_tiny_patch16_224"
    assert config["model_args"]["depth"] == 1


@needs("photos")
def test_photographs_have_the_same_features(tmp_path: Path) -> None:
    model = network(tmp_path, img_size=64)
    exported(AsTimm(), model, tmp_path / "out")
    vit = by_timm(tmp_path / "out")
    files = sorted((FOLDER / "photos").glob("*.JPEG"))[:4]
    images = torch.stack([Transform(64, model.data)(file) for file in files])
    with torch.inference_mode():
        wanted, found = model.backbone(images), vit.forward_features(images)
    torch.testing.assert_close(found[:, 0], wanted.cls, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[:, 1:], wanted.patches, atol=1e-5, rtol=0)
