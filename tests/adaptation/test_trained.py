"""What of a backbone is trained, and at which rates."""

import pytest

from attmask.adaptation.config import AdaptConfig
from attmask.adaptation.trained import build_adapting_optimizer, choose_trained_, rate_of
from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.models.network import Student
from attmask.networks import build_distiller
from attmask.optim import OptimConfig, set_rates
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import ScheduleConfig, Schedules

TINY = load_recipe("tiny")


def student(*overrides: str) -> Student:
    config: PretrainConfig = override(TINY, overrides)
    return build_distiller(config).student


def trained(network: Student) -> set[str]:
    return {name for name, p in network.backbone.named_parameters() if p.requires_grad}


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("head.mlp.0.weight", 1.0),
        ("backbone.mask_token", 1.0),
        ("backbone.vit.norm.weight", 0.4),
        ("backbone.vit.blocks.11.mlp.fc1.weight", 0.4 * 0.5),
        ("backbone.vit.blocks.10.attn.qkv.bias", 0.4 * 0.5**2),
        ("backbone.vit.blocks.0.norm1.weight", 0.4 * 0.5**12),
        ("backbone.vit.pos_embed", 0.4 * 0.5**13),
        ("backbone.vit.patch_embed.proj.weight", 0.4 * 0.5**13),
    ],
)
def test_the_rate_falls_from_block_to_block_and_is_whole_for_what_is_new(
    name: str, rate: float
) -> None:
    config = AdaptConfig(backbone_lr=0.4, layer_decay=0.5)
    assert rate_of(name, 12, config) == pytest.approx(rate)


def test_every_trained_parameter_is_in_one_group_with_its_rate_and_decay() -> None:
    network, config = student(), AdaptConfig(backbone_lr=0.5, layer_decay=0.5)
    optimizer = build_adapting_optimizer(network, OptimConfig(), config)
    set_rates(optimizer, lr=8.0, weight_decay=0.1)
    rates = {
        id(p): (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for p in group["params"]
    }
    named = dict(network.named_parameters())
    assert rates.keys() == {id(p) for p in named.values() if p.requires_grad}
    assert rates[id(named["backbone.vit.blocks.1.mlp.fc1.weight"])] == (2.0, 0.1)
    assert rates[id(named["backbone.vit.blocks.0.mlp.fc1.bias"])] == (1.0, 0.0)
    assert rates[id(named["backbone.vit.pos_embed"])] == (0.5, 0.1)
    assert rates[id(named["head.mlp.0.weight"])] == (8.0, 0.1)


def test_only_the_rate_of_the_backbone_is_held_back() -> None:
    network = student()
    optimizer = build_adapting_optimizer(network, OptimConfig(), AdaptConfig())
    set_rates(optimizer, lr=8.0, weight_decay=0.1, backbone_rate=0.25)
    rates = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert rates[id(network.backbone.vit.norm.weight)] == 2.0
    assert rates[id(network.backbone.mask_token)] == 8.0


def test_the_backbone_is_frozen_and_then_its_rate_rises() -> None:
    config = ScheduleConfig(epochs=10, freeze_backbone_epochs=2, backbone_warmup_epochs=1)
    schedules = Schedules(config, steps_per_epoch=3, batch_size=256)
    rates = [schedules.at(step).backbone_rate for step in range(11)]
    assert rates == [0.0] * 6 + [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_training_from_scratch_holds_nothing_back() -> None:
    schedules = Schedules(ScheduleConfig(epochs=10), steps_per_epoch=3, batch_size=256)
    assert {schedules.at(step).backbone_rate for step in range(30)} == {1.0}


def test_only_the_last_blocks_are_trained_with_the_final_norm_and_the_mask_token() -> None:
    names = trained(student("adapt.blocks=1"))
    kinds = {name.rpartition(".")[0].removeprefix("vit.").split(".norm")[0] for name in names}
    assert "mask_token" in names
    assert {"vit.norm.weight", "vit.norm.bias"} <= names
    assert "vit.blocks.1.attn.qkv.weight" in names
    assert not any(name.startswith(("vit.blocks.0", "vit.pos", "vit.patch")) for name in names)
    assert kinds


def test_more_blocks_than_there_are_are_refused() -> None:
    with pytest.raises(UserError, match="has 2 blocks; use 1 to 2"):
        choose_trained_(student().backbone, AdaptConfig(blocks=3))
