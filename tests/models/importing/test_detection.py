"""What is said of a file, and what happens when it has less than a whole backbone."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.models.interop import import_network
from tests.photographs import photographs


def network(**parts: Any) -> VisionTransformer:
    arguments: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 64,
        "depth": 2,
        "num_heads": 1,
        "num_classes": 0,
    }
    torch.manual_seed(0)
    return VisionTransformer(**{**arguments, **parts}).eval()


def saved(folder: Path, content: object) -> Path:
    torch.save(content, folder / "network.pth")
    return folder / "network.pth"


ONES = torch.ones(3, 3)
TOKEN = torch.ones(1, 64)
LAYOUTS: dict[str, tuple[dict[str, Any], dict[str, Tensor], list[str]]] = {
    "timm": ({}, {"head.weight": ONES}, ["head.weight"]),
    "DINO": ({}, {"head.last_layer.weight_v": ONES}, ["head.last_layer.weight_v"]),
    "AttMask or iBOT": (
        {},
        {"masked_embed": TOKEN, "head.last_layer2.weight_v": ONES},
        ["head.last_layer2.weight_v"],
    ),
    "DINOv2": ({"init_values": 1.0}, {"mask_token": TOKEN}, []),
    "MAE": (
        {},
        {"mask_token": torch.ones(1, 1, 16), "decoder_norm.weight": ONES},
        ["mask_token", "decoder_norm.weight"],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_and_what_was_used_of_it_are_said_in_one_line(
    layout: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts, neighbours, left_out = LAYOUTS[layout]
    vit = network(**parts)
    content = {"teacher": {**vit.state_dict(), **neighbours}, "epoch": 3, "student": {}}
    path = saved(tmp_path, content)
    with caplog.at_level(logging.INFO, "attmask"):
        found = import_network(path)
    own = len(vit.state_dict()) + (layout in ("AttMask or iBOT", "DINOv2"))
    assert found.detection.layout == layout
    assert (found.detection.used, found.detection.missing) == (own, ())
    assert list(found.detection.left_out) == left_out
    assert found.detection.beside == ("epoch", "student")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{path}: layout of {layout}, width 64, 2 blocks, 1 head, patches of 8")
    assert "4 x 4 positions (resized: " in said
    assert f"tensors: {own} used" in said
    assert "\n" not in said


def test_a_distilled_network_is_refused_with_the_reason(tmp_path: Path) -> None:
    state = {**network().state_dict(), "dist_token": torch.ones(1, 1, 64)}
    with pytest.raises(UserError, match="is a distilled DeiT"):
        import_network(saved(tmp_path, {"model": state}))


def test_less_than_the_whole_backbone_is_refused_unless_asked(tmp_path: Path) -> None:
    state = network().state_dict()
    absent = [name for name in state if name.startswith(("blocks.1.mlp.", "norm."))]
    part = {name: tensor for name, tensor in state.items() if name not in absent}
    path = saved(tmp_path, {**part, "fc_norm.weight": ONES})
    with pytest.raises(UserError, match=r"does not have: fc_norm\.weight"):
        load_model(path)
    path = saved(tmp_path, part)
    with pytest.raises(UserError, match=r"it lacks: blocks\.1\.mlp.*or add @partial=true"):
        load_model(f"{path}@partial=false")
    before = torch.get_rng_state()
    model, again = load_model(f"{path}@partial=true"), load_model(f"{path}@partial=true")
    assert torch.equal(torch.get_rng_state(), before)
    assert model.digest == again.digest
    assert "6 missing (blocks.1.mlp" in model.describe()["tensors"]
    made = model.backbone.vit.state_dict()
    assert all(torch.equal(made[name], tensor) for name, tensor in part.items())
    assert made["blocks.1.mlp.fc1.weight"].std().item() == pytest.approx(0.02, rel=0.05)
    assert made["blocks.1.mlp.fc1.bias"].abs().max() == 0


def test_a_part_of_a_network_still_has_to_tell_its_sizes(tmp_path: Path) -> None:
    state = network().state_dict()
    for absent in ("pos_embed", "patch_embed.proj.weight"):
        part = {name: tensor for name, tensor in state.items() if name != absent}
        with pytest.raises(UserError, match=f"has no {absent}"):
            import_network(saved(tmp_path, part), partial=True)
    wrong = {**state, "blocks.0.mlp.fc1.bias": torch.ones(3)}
    with pytest.raises(UserError, match="shape that does not fit"):
        import_network(saved(tmp_path, wrong), partial=True)
    many = {**state, "blocks.99999999999.norm1.bias": torch.ones(64)}
    with pytest.raises(UserError, match="wanted at most 200 blocks"):
        import_network(saved(tmp_path, many), partial=True)


def test_a_part_may_lack_blocks_in_the_middle_and_the_class_token(tmp_path: Path) -> None:
    state = network(depth=3).state_dict()
    part = {n: t for n, t in state.items() if "blocks.1." not in n and n != "cls_token"}
    found = import_network(saved(tmp_path, {**part, "fc_norm.weight": ONES}), partial=True)
    assert found.backbone.depth == 3
    assert len(found.detection.missing) == 13
    assert found.detection.left_out == ("fc_norm.weight",)


def test_a_directory_of_timm_gives_the_tokens_of_timm(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {
        "embed_dim": 64,
        "depth": 2,
        "num_heads": 4,
        "img_size": 32,
        "patch_size": 8,
    }
    vit = timm.create_model("vit_small_patch16_224", **arguments).eval()
    assert isinstance(vit, VisionTransformer)
    config = {
        "architecture": "vit_small_patch16_224",
        "num_classes": 1000,
        "model_args": arguments,
        "pretrained_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3, "input_size": [3, 40, 40]},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(vit.state_dict(), tmp_path / "model.safetensors", metadata={"positions": "reference"})
    model = load_model(tmp_path)
    images = photographs(2, 3, 32, 32)
    with torch.no_grad():
        theirs = vit.forward_features(images)
        torch.testing.assert_close(model.backbone.all_tokens(images), theirs, rtol=1e-5, atol=1e-5)
    assert (model.image_size, model.data.std) == (40, (0.25,) * 3)
    assert (model.backbone.positions, model.backbone.heads) == ("reference", (4, 4))
    (tmp_path / "config.json").write_text(json.dumps({**config, "architecture": "nothing"}))
    with pytest.raises(UserError, match="no architecture that timm has: nothing"):
        load_model(tmp_path)
    for hostile in ({"checkpoint_path": "/etc/passwd"}, {"depth": 10**9}, {"img_size": -1}):
        (tmp_path / "config.json").write_text(json.dumps({**config, "model_args": hostile}))
        with pytest.raises(UserError, match="which no plain ViT has"):
            load_model(tmp_path)
