import copy
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import nn

from attmask.models.network import Network
from attmask.optim import (
    OptimConfig,
    build_optimizer,
    clip_each_parameter_,
    empty_moments_,
    gradient_norms,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rates,
)
from tests.reference import arrays, our_name, reference_network


def names(network: nn.Module, parameters: list[nn.Parameter]) -> set[str]:
    wanted = {id(p) for p in parameters}
    return {name for name, p in network.named_parameters() if id(p) in wanted}


def step(network: Network, optimizer: torch.optim.Optimizer, seed: int) -> None:
    """One update with gradients that depend on the seed alone."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer.step()


def test_decayed_and_not_decayed_parameters_are_those_of_the_reference() -> None:
    network, golden = reference_network(), arrays("trajectory")
    decayed, not_decayed = build_optimizer(network, OptimConfig()).param_groups
    assert names(network, decayed["params"]) == {our_name(n) for n in golden["decayed"]}
    assert names(network, not_decayed["params"]) == {our_name(n) for n in golden["not_decayed"]}


def test_positions_cls_mask_token_and_the_norm_of_the_last_layer_are_decayed() -> None:
    network = reference_network()
    decayed = names(network, build_optimizer(network, OptimConfig()).param_groups[0]["params"])
    assert {
        "backbone.vit.pos_embed",
        "backbone.vit.cls_token",
        "backbone.mask_token",
        "head.last_layer.parametrizations.weight.original0",
    } <= decayed


def test_parameters_without_gradient_are_left_out() -> None:
    network = reference_network()
    network.head.requires_grad_(False)
    groups = build_optimizer(network, OptimConfig()).param_groups
    optimised = names(network, [p for group in groups for p in group["params"]])
    assert optimised == {n for n, _ in network.named_parameters() if n.startswith("backbone.")}


def test_rates_go_to_both_groups_and_decay_to_one() -> None:
    optimizer = build_optimizer(reference_network(), OptimConfig(betas=(0.8, 0.95)))
    set_rates(optimizer, lr=0.25, weight_decay=0.125)
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 0.25]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.125, 0.0]
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.95)


def test_an_update_is_plain_adamw() -> None:
    network = reference_network()
    plain = copy.deepcopy(network)
    optimizer = build_optimizer(network, OptimConfig())
    set_rates(optimizer, lr=1e-2, weight_decay=0.3)
    step(network, optimizer, seed=0)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in plain.named_parameters():
        gradient = torch.randn(parameter.shape, generator=generator)
        decay = 0.0 if parameter.dim() == 1 else 0.3
        # The first step of Adam: both moments are corrected to the gradient and its square.
        moved = parameter * (1 - 1e-2 * decay) - 1e-2 * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(network.get_parameter(name), moved, rtol=1e-5, atol=1e-6)


def test_a_last_layer_without_gradient_does_not_move_not_even_by_decay() -> None:
    network = reference_network()
    before = copy.deepcopy(network)
    optimizer = build_optimizer(network, OptimConfig())
    set_rates(optimizer, lr=1e-2, weight_decay=0.4)
    for parameter in network.parameters():
        parameter.grad = torch.ones_like(parameter)
    for parameter in network.last_layers():
        parameter.grad = None
    optimizer.step()
    for name, parameter in network.named_parameters():
        still = torch.equal(parameter, before.get_parameter(name))
        assert still == name.startswith("head.last_layer."), name


@given(
    scales=st.lists(st.sampled_from([0.0, 1e-8, 1e-3, 0.5, 1.0, 30.0, 1e6]), max_size=6),
    limit=st.floats(1e-3, 10),
    seed=st.integers(0, 1000),
)
def test_each_gradient_is_clipped_by_itself_as_in_a_plain_loop(
    scales: list[float], limit: float, seed: int
) -> None:
    torch.manual_seed(seed)
    parameters = [nn.Parameter(torch.zeros(2 + i, 3)) for i in range(len(scales))]
    expected = []
    for parameter, scale in zip(parameters, scales, strict=True):
        gradient = scale * torch.randn_like(parameter)
        parameter.grad = gradient.clone()
        coefficient = limit / (gradient.norm().item() + 1e-6)
        expected.append(gradient * coefficient if coefficient < 1 else gradient)
    without = nn.Parameter(torch.zeros(3))
    every = [*parameters, without]
    clip_each_parameter_(every, limit, gradient_norms(every))
    assert without.grad is None
    for parameter, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, wanted, rtol=1e-5, atol=0)


def test_a_small_gradient_beside_a_large_one_is_not_touched() -> None:
    small, large = nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))
    small.grad, large.grad = torch.full((4,), 0.1), torch.full((4,), 100.0)
    clip_each_parameter_([small, large], 3.0, gradient_norms([small, large]))
    assert small.grad.tolist() == torch.full((4,), 0.1).tolist()
    assert large.grad.norm().item() == pytest.approx(3.0, rel=1e-6)


def test_a_run_continues_exactly_from_saved_optimiser_tensors(tmp_path: Path) -> None:
    network = reference_network()
    optimizer = build_optimizer(network, OptimConfig())
    set_rates(optimizer, lr=1e-2, weight_decay=0.1)
    for seed in (0, 1):
        step(network, optimizer, seed)
    resumed = copy.deepcopy(network)
    save_file(optimizer_tensors(optimizer, network), tmp_path / "optimiser.safetensors")

    fresh = build_optimizer(resumed, OptimConfig())
    set_rates(fresh, lr=1e-2, weight_decay=0.1)
    load_optimizer_tensors(fresh, resumed, load_file(tmp_path / "optimiser.safetensors"))
    step(network, optimizer, seed=2)
    step(resumed, fresh, seed=2)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, resumed.get_parameter(name)), name


def test_optimiser_tensors_carry_the_names_of_the_parameters() -> None:
    network = reference_network()
    optimizer = build_optimizer(network, OptimConfig())
    assert optimizer_tensors(optimizer, network) == {}
    step(network, optimizer, seed=0)
    assert set(optimizer_tensors(optimizer, network)) == {
        f"{name}:{key}"
        for name, _ in network.named_parameters()
        for key in ("step", "exp_avg", "exp_avg_sq")
    }


def test_moments_are_made_for_the_parameters_that_a_checkpoint_has() -> None:
    first = nn.Linear(3, 2)
    module = nn.Sequential(first, nn.Linear(2, 2))
    optimizer = build_optimizer(module, OptimConfig())
    empty_moments_(optimizer, module, ["0.weight:step", "0.weight:exp_avg", "1.bias:exp_avg"])
    assert list(optimizer_tensors(optimizer, module)) == [
        "0.weight:step",
        "0.weight:exp_avg",
        "0.weight:exp_avg_sq",
    ]
    stepped = build_optimizer(module, OptimConfig())
    module(torch.ones(1, 3)).sum().backward()
    stepped.step()
    ours, theirs = (each.state[first.weight] for each in (optimizer, stepped))
    for name, tensor in theirs.items():
        assert (ours[name].shape, ours[name].dtype) == (tensor.shape, tensor.dtype)


def test_a_parameter_without_a_gradient_has_the_norm_zero() -> None:
    first, without, last = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    first.grad, last.grad = torch.tensor([3.0, 4.0]), torch.tensor([0.0, torch.inf])
    assert gradient_norms([first, without, last]).tolist() == [5.0, 0.0, torch.inf]
    assert gradient_norms([without]).tolist() == [0.0]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("weight:exp_avg", torch.ones(7), r"weight:exp_avg of the optimizer has shape \(7,\)"),
        ("weight:step", torch.ones(2), r"weight:step of the optimizer has shape \(2,\)"),
        ("weight:exp_avg_sq", None, "the optimizer lacks a part of weight"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    name: str, value: torch.Tensor | None, says: str
) -> None:
    module = nn.Linear(2, 3)
    optimizer = build_optimizer(module, OptimConfig())
    module(torch.ones(2)).sum().backward()
    optimizer.step()
    tensors = {**optimizer_tensors(optimizer, module), name: value}
    whole = {key: tensor for key, tensor in tensors.items() if tensor is not None}
    with pytest.raises(ValueError, match=says):
        load_optimizer_tensors(optimizer, module, whole)
