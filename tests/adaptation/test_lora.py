"""Updates of low rank: none at first, merged they compute the same, only they are trained."""

import copy

import pytest
import torch
from torch import Tensor

from attmask.adaptation.config import AdaptConfig
from attmask.adaptation.lora import add_updates_, merged
from attmask.config import PretrainConfig
from attmask.models.backbone import Backbone, build_backbone
from attmask.networks import build_distiller
from attmask.recipe import load_recipe
from attmask.run_config import override
from tests.models.rotary_networks import eva

TINY = load_recipe("tiny")
LORA = ("adapt.lora_rank=3", "adapt.lora_mlp=true")


def with_lora(*overrides: str) -> PretrainConfig:
    return override(TINY, (*LORA, *overrides))


def images() -> Tensor:
    return torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_a_network_starts_as_it_is_without_updates() -> None:
    plain = build_distiller(TINY).student.backbone
    updated = build_distiller(with_lora()).student.backbone
    assert torch.equal(plain(images()).cls, updated(images()).cls)


def test_merged_weights_compute_what_the_updates_compute() -> None:
    config = with_lora()
    network = build_distiller(config).student.backbone
    for name, parameter in network.named_parameters():
        if name.endswith(".weight.0.b"):
            torch.nn.init.normal_(parameter, std=0.3)
    plain = build_backbone(config.backbone, image_size=32, channels=3)
    before = plain(images()).cls
    plain.load_state_dict(merged(network.state_dict()))
    unmerged, together = network(images()), plain(images())
    for ours, theirs in zip(unmerged, together, strict=True):
        torch.testing.assert_close(ours, theirs)
    assert not torch.allclose(before, together.cls, atol=0.1), "the updates change the network"


def test_weights_without_updates_are_merged_to_themselves() -> None:
    weights = build_distiller(TINY).state_dict()
    assert merged(weights).keys() == weights.keys(), "also the weight norm of the head"


def test_only_updates_and_the_mask_token_of_the_backbone_are_trained() -> None:
    backbone = build_distiller(with_lora("adapt.blocks=1")).student.backbone
    trained = {name for name, p in backbone.named_parameters() if p.requires_grad}
    layers = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    assert trained == {
        "mask_token",
        *(f"vit.blocks.1.{layer}.parametrizations.weight.0.{p}" for layer in layers for p in "ab"),
    }


def test_attention_alone_has_updates_unless_asked() -> None:
    backbone = build_distiller(override(TINY, ["adapt.lora_rank=2"])).student.backbone
    updated = {name.split(".")[3] for name, _ in backbone.named_parameters() if ".0.a" in name}
    assert updated == {"attn"}


def test_the_teacher_follows_the_updates() -> None:
    distiller = build_distiller(with_lora())
    before = copy.deepcopy(distiller.teacher.backbone.state_dict())
    with torch.no_grad():
        for name, parameter in distiller.student.backbone.named_parameters():
            if name.endswith(".0.b"):
                parameter.add_(1)
    distiller.update_teacher_(0.5)
    after = distiller.teacher.backbone.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {name for name in before if name.endswith(".0.b")}


ONE_PROJECTION = {"attn.qkv", "attn.proj"}
THREE_PROJECTIONS = {"attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.proj"}
PLAIN, SWIGLU = {"mlp.fc1", "mlp.fc2"}, {"mlp.fc1_g", "mlp.fc1_x", "mlp.fc2"}


@pytest.mark.parametrize(
    ("kind", "attention", "mlp"),
    [
        ("vit_small_patch16_dinov3", ONE_PROJECTION, PLAIN),
        ("three projections", THREE_PROJECTIONS, PLAIN),
        ("vit_small_plus_patch16_dinov3", ONE_PROJECTION, SWIGLU),
    ],
)
def test_every_layer_that_a_rotary_network_has_is_updated_and_merged(
    kind: str, attention: set[str], mlp: set[str]
) -> None:
    plain, updated = (Backbone(eva(kind)).eval() for _ in range(2))
    before = plain(images()).cls
    add_updates_(updated, AdaptConfig(lora_rank=2, lora_mlp=True), updated.blocks)
    own = {name for name, p in updated.named_parameters() if name.endswith(".weight.0.b")}
    layers = {name.split(".", 3)[3].partition(".parametrizations")[0] for name in own}
    assert layers == attention | mlp
    assert torch.equal(updated(images()).cls, before)
    for name in own:
        torch.nn.init.normal_(updated.get_parameter(name), std=0.3)
        unmerged = updated(images()).cls
        assert not torch.equal(unmerged, before), f"{name} is not read"
        before = unmerged
    plain.load_state_dict(merged(updated.state_dict()))
    torch.testing.assert_close(plain(images()).cls, before, rtol=1e-4, atol=1e-4)
