import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from attmask.models.heads import Head, HeadConfig
from tests.reference import reference_network, tensors

CONFIG = HeadConfig(prototypes=50, hidden=32, bottleneck=16)


def head() -> Head:
    torch.manual_seed(0)
    made = Head(24, CONFIG)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, 24, generator=torch.Generator().manual_seed(1))


def test_scores_equal_the_reference() -> None:
    golden, network = tensors("network"), reference_network()
    with torch.no_grad():
        cls = network.head(golden["tokens"][:, 0])
        patches = network.patch_head(golden["tokens"][:, 1:])
    torch.testing.assert_close(cls, golden["head_cls"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(patches, golden["head_patch"], rtol=1e-4, atol=1e-4)


def test_a_head_is_an_mlp_a_sphere_and_a_weight_normed_layer() -> None:
    made, x = head(), tokens(5)
    hidden = x
    for index in (0, 2, 4):
        layer = made.mlp[index]
        assert isinstance(layer, nn.Linear)
        hidden = hidden @ layer.weight.T + layer.bias
        if index < 4:
            hidden = hidden * 0.5 * (1 + torch.erf(hidden / math.sqrt(2)))
    point = hidden / hidden.norm(dim=-1, keepdim=True)
    g, v = (made.get_parameter(f"last_layer.parametrizations.weight.original{i}") for i in (0, 1))
    weight = g * v / v.norm(dim=1, keepdim=True)
    torch.testing.assert_close(made(x), point @ weight.T)


def test_points_lie_on_the_unit_sphere() -> None:
    norms = head().embed(tokens(2, 7)).norm(dim=-1)
    torch.testing.assert_close(norms, torch.ones(2, 7))


@pytest.mark.parametrize("autocast", [False, True])
def test_the_mean_of_all_scores_is_the_score_of_the_mean_point(autocast: bool) -> None:
    made = head()
    points = made.embed(tokens(3, 40)).detach()
    plain = made.last_layer(points).mean((0, 1))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        ours = made.mean_logits(points)
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)
    half = made.mean_logits(points.bfloat16())
    torch.testing.assert_close(half, plain, rtol=1e-2, atol=1e-2)


def test_a_head_starts_as_the_references_does() -> None:
    torch.manual_seed(0)
    made = Head(384, HeadConfig(prototypes=1000, hidden=512, bottleneck=64))
    linear = [layer for layer in made.mlp if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [
        (384, 512),
        (512, 512),
        (512, 64),
    ]
    for layer in linear:
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert layer.bias.abs().max() == 0
    norm = made.get_parameter("last_layer.parametrizations.weight.original0")
    direction = made.get_parameter("last_layer.parametrizations.weight.original1")
    assert norm.shape == (1000, 1)
    assert norm.unique().tolist() == [1]
    assert norm.requires_grad
    bound = 1 / math.sqrt(64)  # PyTorch's default for a linear layer
    assert direction.abs().max().item() == pytest.approx(bound, rel=1e-2)
    assert direction.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert made.last_layer.bias is None
    torch.testing.assert_close(made.last_layer.weight.norm(dim=1), torch.ones(1000))


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_the_number_of_layers_is_a_setting(layers: int) -> None:
    made = Head(24, CONFIG.model_copy(update={"layers": layers}))
    assert sum(isinstance(layer, nn.Linear) for layer in made.mlp) == layers
    assert sum(isinstance(layer, nn.GELU) for layer in made.mlp) == layers - 1
    assert made(tokens(3)).shape == (3, 50)


def test_any_number_of_tokens_may_come_also_none() -> None:
    made = head()
    assert made(tokens(2, 3)).shape == (2, 3, 50)
    assert made(tokens(0)).shape == (0, 50)


def test_the_papers_head_is_the_default() -> None:
    config = HeadConfig()
    assert (config.layers, config.hidden, config.bottleneck) == (3, 2048, 256)
    assert (config.prototypes, config.shared) == (8192, True)


@pytest.mark.parametrize("wrong", [{"prototypes": 1}, {"hidden": 0}, {"layers": 0}])
def test_impossible_heads_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        HeadConfig.model_validate(wrong)
