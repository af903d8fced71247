"""The learning rates of layers, computed by hand, and the tensors that are not decayed."""

from collections.abc import Callable

import pytest
from torch import nn

from attmask.errors import UserError
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.models.detection.detector import Detector
from attmask.models.upernet import Segmenter, SegmenterConfig
from attmask.optim import set_rates
from attmask.tuning.config import TunedOptimConfig
from attmask.tuning.optim import build_optimizer
from tests.models.detection.detectors import SMALL

DEPTH, DECAY, LR = 12, 0.65, 7e-4


def backbone() -> Backbone:
    config = BackboneConfig(patch_size=16, width=12, depth=DEPTH, heads=3)
    return build_backbone(config, image_size=64, channels=3)


NETWORKS: dict[str, Callable[[], Segmenter | Detector]] = {
    "segmenter": lambda: Segmenter(backbone(), 4, SegmenterConfig(channels=8)),
    "detector": lambda: Detector(backbone(), 4, SMALL),
}


def powers(name: str) -> int:
    """How often the rate of a parameter is multiplied by the decay: 13 less its layer."""
    if name.startswith(("backbone.vit.pos_embed", "backbone.vit.cls", "backbone.vit.patch_embed")):
        return 13
    if name.startswith("backbone.vit.blocks."):
        return 12 - int(name.split(".")[3])  # block 0 is layer 1
    return 0


def rates(network: nn.Module, config: TunedOptimConfig) -> dict[str, tuple[float, float]]:
    """The learning rate and the weight decay of each trained parameter at a step."""
    optimizer = build_optimizer(network, config)
    set_rates(optimizer, lr=LR, weight_decay=0.05)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return {
        names[id(parameter)]: (group["lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_rate_falls_from_the_heads_to_the_patches(kind: str) -> None:
    network = NETWORKS[kind]()
    found = rates(network, TunedOptimConfig(layer_decay=DECAY))
    assert found.keys() == {name for name, p in network.named_parameters() if p.requires_grad}
    for name, (lr, _) in found.items():
        assert lr == pytest.approx(LR * DECAY ** powers(name)), name
    assert found["backbone.vit.pos_embed"][0] == pytest.approx(2.5880e-06, rel=1e-4)
    assert found["backbone.vit.patch_embed.proj.weight"][0] == pytest.approx(2.5880e-06, rel=1e-4)
    assert found["backbone.vit.blocks.0.attn.qkv.weight"][0] == pytest.approx(3.9816e-06, rel=1e-4)
    assert found["backbone.vit.blocks.11.mlp.fc2.weight"][0] == pytest.approx(4.55e-4)
    assert {lr for name, (lr, _) in found.items() if not name.startswith("backbone.")} == {7e-4}


@pytest.mark.parametrize("kind", NETWORKS)
def test_biases_and_norms_are_not_decayed_but_positions_are(kind: str) -> None:
    network = NETWORKS[kind]()
    found = rates(network, TunedOptimConfig())
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            assert found[name][1] == (0.0 if parameter.ndim <= 1 else 0.05), name
    assert found["backbone.vit.pos_embed"] == (LR, 0.05)
    fewer = rates(network, TunedOptimConfig(no_decay=("pos_embed",)))
    assert fewer.pop("backbone.vit.pos_embed") == (LR, 0.0)
    found.pop("backbone.vit.pos_embed")
    assert fewer == found


def test_a_tensor_that_is_not_there_is_one_line() -> None:
    with pytest.raises(UserError, match="the network has no tensor pos_embedding"):
        build_optimizer(NETWORKS["segmenter"](), TunedOptimConfig(no_decay=("pos_embedding",)))
