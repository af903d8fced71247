"""The classifier: what it reads of the backbone, in training and in evaluations."""

from typing import Literal

import pytest
import torch

from attmask.evaluation.features.forward import frozen
from tests.finetuning.networks import SIZE, small_classifier

IMAGES = torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("token", ["cls", "gap", "cls+gap"])
def test_training_and_evaluations_read_the_same(token: Literal["cls", "gap", "cls+gap"]) -> None:
    network = small_classifier(token=token)
    with frozen(network):
        read = network.head(network.readout(network.backbone, IMAGES))
        trained = network(IMAGES)
    torch.testing.assert_close(trained, read, rtol=1e-5, atol=1e-5)


def test_the_inputs_are_cls_and_the_mean_of_the_patches_after_the_final_norm() -> None:
    network = small_classifier(token="cls+gap")
    with torch.no_grad():
        tokens = network.backbone(IMAGES)
        vectors = network.readout(network.backbone, IMAGES)
    wanted = torch.cat([tokens.cls, tokens.patches.mean(1)], dim=1)
    torch.testing.assert_close(vectors, wanted, rtol=1e-5, atol=1e-5)


def test_the_head_starts_as_scaled() -> None:
    plain, scaled = small_classifier(head_scale=1.0), small_classifier(head_scale=0.001)
    torch.testing.assert_close(scaled.head.weight, 0.001 * plain.head.weight)
    assert plain.head.bias.abs().max() == 0
    assert 0.01 < plain.head.weight.std() < 0.03


def test_a_frozen_backbone_gives_the_same_logits_and_gradients_of_zero() -> None:
    network = small_classifier()
    torch.testing.assert_close(network(IMAGES, frozen=True), network(IMAGES))
    network.zero_grad()
    network(IMAGES, frozen=True).sum().backward()
    trained = [p for p in network.backbone.parameters() if p.requires_grad]
    assert all(p.grad is not None and p.grad.abs().max() == 0 for p in trained)
    assert network.head.weight.grad is not None


def test_every_trained_parameter_has_a_gradient() -> None:
    for token in ("cls", "gap", "cls+gap"):
        network = small_classifier(token=token)
        network(IMAGES).square().sum().backward()
        lacking = [n for n, p in network.named_parameters() if p.requires_grad and p.grad is None]
        assert lacking == []


def test_any_image_size_is_taken() -> None:
    larger = torch.randn(2, 3, 2 * SIZE, SIZE)
    assert small_classifier()(larger).shape == (2, 5)
