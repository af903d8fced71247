"""Tensors in the names of timm's Eva become the network they belong to."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.eva import Eva
from torch import Tensor

from attmask.errors import UserError
from attmask.models.backbone import Backbone
from attmask.models.blueprint import Blueprint
from attmask.models.interop import import_network
from attmask.models.rotary_weights import eva_network_for, has_rotary_positions
from tests.models.rotary_networks import NAMES, eva, small_eva
from tests.photographs import photographs
from tests.runs import SOURCE

FILE = Path("weights.safetensors")
IMAGES = photographs(2, 3, 48, 64)


@pytest.mark.parametrize("kind", [*NAMES, "no registers", "no layer scale", "three projections"])
def test_a_network_is_told_by_its_tensors(kind: str) -> None:
    theirs = eva(kind)
    ours = eva_network_for(FILE, theirs.state_dict(), 3)
    backbone = Backbone(ours)
    with torch.no_grad():
        tokens, wanted = backbone(IMAGES), theirs.forward_features(IMAGES)
    torch.testing.assert_close(tokens.cls, wanted[:, 0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tokens.patches, wanted[:, backbone.prefix :], rtol=1e-5, atol=1e-5)
    assert (backbone.depth, backbone.width, backbone.heads) == (2, 48, (3, 3))
    assert backbone.prefix == (1 if kind == "no registers" else 5)
    assert backbone.patch_size == 16


@pytest.mark.parametrize("name", [*NAMES, "vit_large_patch16_dinov3", "vit_7b_patch16_dinov3"])
def test_heads_are_as_many_as_networks_of_this_width_have(name: str) -> None:
    with torch.device("meta"):
        theirs = timm.create_model(name, num_classes=0, depth=1)
    assert isinstance(theirs, Eva)
    tensors = {key: torch.zeros(1).expand(t.shape) for key, t in theirs.state_dict().items()}
    assert Backbone(eva_network_for(FILE, tensors, None)).heads == Backbone(theirs).heads


def test_networks_with_rotary_positions_are_told_from_others() -> None:
    assert has_rotary_positions(eva().state_dict())
    assert has_rotary_positions(eva(NAMES[1]).state_dict())
    plain = timm.create_model("vit_tiny_patch16_224", depth=1, init_values=1.0)
    assert not has_rotary_positions(plain.state_dict())


def changed(**tensors: Tensor | None) -> dict[str, Tensor]:
    """Weights of a small network, some of them other ones or left out (None)."""
    named = {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    whole = {**small_eva().state_dict(), **named}
    return {name: tensor for name, tensor in whole.items() if tensor is not None}


@pytest.mark.parametrize(
    ("tensors", "heads", "why"),
    [
        (changed(cls_token=None), 3, "has no cls_token: found"),
        (changed(blocks__0__mlp__fc1__weight=None), 3, "has no blocks.0.mlp.fc1.weight"),
        (changed(pos_embed=torch.ones(1, 16, 24)), 3, "position embeddings beside rotary"),
        (changed(patch_embed__proj__weight=torch.ones(24, 3, 8, 4)), 3, "shapes that no such ViT"),
        (changed(patch_embed__proj__weight=torch.ones(24, 3)), 3, "shapes that no such ViT"),
        (changed(reg_token=torch.ones(4, 24)), 3, r"shapes that no such ViT .*reg_token \(4, 24\)"),
        (changed(cls_token=torch.ones(1, 0, 24)), 3, "shapes that no such ViT"),
        (changed(norm__weight=None), 3, "without all its weights, of which it lacks: norm.weight"),
        (changed(head__weight=torch.ones(2)), 3, "does not have: head.weight"),
        (changed(norm__weight=torch.ones(9)), 3, "a shape that does not fit the others: norm"),
        (changed(norm__weight=torch.full((24,), torch.nan)), 3, "norm.weight"),
        (changed(blocks__9__norm1__bias=torch.ones(24)), 3, "4 blocks, but none with number 3"),
        (changed(), None, "width 24, which is not a multiple of 64.*give heads="),
        (changed(), 4, "width 24, which cannot be 4 heads.*wanted a multiple of 16"),
        (changed(), 0, "width 24, which cannot be 0 heads"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    tensors: dict[str, Tensor], heads: int | None, why: str
) -> None:
    with pytest.raises(UserError, match=f"weights.safetensors .*{why}") as caught:
        eva_network_for(FILE, tensors, heads)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("blueprint", [Blueprint(heads=6), Blueprint(name=NAMES[1])])
def test_a_saved_backbone_is_built_again(blueprint: Blueprint) -> None:
    vit = timm.create_model(NAMES[1], num_classes=0)
    assert isinstance(vit, Eva)
    backbone = Backbone(vit)
    again = blueprint.build(backbone.state_dict(), "here")
    with torch.no_grad():
        assert torch.equal(again(IMAGES).patches, backbone(IMAGES).patches)


def test_rotary_positions_are_named_and_partial_weights_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "eva.safetensors"
    save_file(eva().state_dict(), file)
    with caplog.at_level(logging.INFO):
        import_network(file, heads=3)
    assert "patches of 16, rotary positions, 4 registers" in caplog.text
    with pytest.raises(UserError, match=r"has rotary positions, and partial=true is for networks"):
        import_network(file, heads=3, partial=True)


IMPORTED = """
import sys, torch
from safetensors.torch import load_file
from attmask.evaluation.loading import load_model

model = load_model("timm:vit_small_patch16_dinov3.lvd1689m")
state, stored = model.backbone.vit.state_dict(), load_file(sys.argv[1])
assert all(torch.equal(state[name], tensor) for name, tensor in stored.items())
print(model.image_size, model.backbone.heads[0], model.backbone.prefix, model.data.mean)
"""


def test_timms_pretrained_networks_are_imported_by_name(tmp_path: Path) -> None:
    """From the hub's cache on this machine, as a first import leaves it."""
    kept = tmp_path / "hub" / "models--timm--vit_small_patch16_dinov3.lvd1689m"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    file = kept / "snapshots" / ("0" * 40) / "model.safetensors"
    file.parent.mkdir(parents=True)
    save_file(timm.create_model(NAMES[0], num_classes=0).state_dict(), file)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, file],
        env={
            **os.environ,
            "HF_HOME": str(tmp_path),
            "HF_HUB_OFFLINE": "1",
            "PYTHONPATH": str(SOURCE),
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=3)[:3] == ["256", "6", "5"]
