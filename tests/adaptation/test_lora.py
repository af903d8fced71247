"""Updates of low rank: none at first, merged they compute the same, only they are trained."""

import copy

import torch
from torch import Tensor

from attmask.adaptation.lora import merged
from attmask.config import PretrainConfig
from attmask.models.backbone import build_backbone
from attmask.networks import build_distiller
from attmask.recipe import load_recipe
from attmask.run_config import override

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
