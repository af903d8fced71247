"""The segmenter: its heads against transformers' UperNet, its losses by hand, its gradients."""

import math
import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from timm.optim import param_groups_layer_decay
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.models.upernet import FCNHead, Segmenter, SegmenterConfig, UperNetHead, pixel_loss

WIDTH, CHANNELS, CLASSES, PATCH, SIZE = 24, 12, 5, 8, 64


def small_backbone(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    config = BackboneConfig(patch_size=PATCH, width=WIDTH, depth=4, heads=3, init_std=0.2)
    return build_backbone(config, image_size=SIZE, channels=3)


def small_segmenter(**settings: Any) -> Segmenter:
    config = SegmenterConfig(**{"channels": CHANNELS, "auxiliary_channels": 8, **settings})
    return Segmenter(small_backbone(), CLASSES, config)


def pictures(count: int = 2, height: int = SIZE, width: int = SIZE) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(1))


def some_labels(count: int = 2, height: int = SIZE, width: int = SIZE) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(-1, CLASSES, (count, height, width), generator=generator)


def some_maps(count: int = 2) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    sizes = [(20, 28), (10, 14), (5, 7), (3, 4)]
    return [torch.randn(count, WIDTH, *size, generator=generator) for size in sizes]


# --- against another implementation


def theirs() -> Any:
    return pytest.importorskip("transformers.models.upernet.modeling_upernet")


def their_config(classes: int = CLASSES) -> Any:
    return SimpleNamespace(
        pool_scales=(1, 2, 3, 6),
        hidden_size=CHANNELS,
        num_labels=classes,
        auxiliary_in_channels=None,
        auxiliary_channels=8,
        auxiliary_num_convs=1,
        auxiliary_concat_input=False,
    )


def in_our_names(state: dict[str, Tensor]) -> dict[str, Tensor]:
    renamed = {
        r"^psp_modules\.": "pools.",
        r"^lateral_convs\.": "laterals.",
        r"^fpn_convs\.": "outputs.",
        r"^fpn_bottleneck\.": "fusion.",
        r"^convs\.0\.": "convolution.",
        r"\.conv\.": ".0.",
        r"^convolution\.conv\.": "convolution.0.",
        r"\.batch_norm\.": ".1.",
        r"^classifier\.": "classifier.1.",
    }
    ours = {}
    for name, value in state.items():
        for pattern, replacement in renamed.items():
            name = re.sub(pattern, replacement, name)
        ours[name] = value
    return ours


def shaken(network: nn.Module) -> nn.Module:
    """Weights and running statistics far from their start, so that every one of them matters."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, value in network.state_dict().items():
            if value.is_floating_point():
                noise = torch.randn(value.shape, generator=generator)
                value.add_(0.3 * (noise.abs() if "var" in name else noise))
    return network


@pytest.mark.parametrize("training", [False, True])
def test_the_head_equals_the_one_of_transformers(training: bool) -> None:
    other = shaken(theirs().UperNetHead(their_config(), [WIDTH] * 4)).train(training)
    ours = UperNetHead(WIDTH, CHANNELS, CLASSES, dropout=0.0).train(training)
    ours.load_state_dict(in_our_names(other.state_dict()))
    logits = ours(some_maps())
    torch.testing.assert_close(logits, other(some_maps()), rtol=1e-4, atol=1e-4)
    assert logits.std() > 0.1


@pytest.mark.parametrize("training", [False, True])
def test_the_auxiliary_head_equals_the_one_of_transformers(training: bool) -> None:
    other = shaken(theirs().UperNetFCNHead(their_config(), [WIDTH] * 4)).train(training)
    ours = FCNHead(WIDTH, 8, CLASSES, dropout=0.0).train(training)
    ours.load_state_dict(in_our_names(other.state_dict()))
    maps = some_maps()
    torch.testing.assert_close(ours(maps[2]), other(maps), rtol=1e-4, atol=1e-4)


def test_the_heads_have_as_many_parameters_as_those_of_transformers() -> None:
    def count(network: nn.Module) -> int:
        return sum(p.numel() for p in network.parameters())

    other = theirs()
    ours = (UperNetHead(WIDTH, CHANNELS, 150), FCNHead(WIDTH, 8, 150))
    for head, name in zip(ours, ("UperNetHead", "UperNetFCNHead"), strict=True):
        assert count(head) == count(getattr(other, name)(their_config(150), [WIDTH] * 4))


# --- the network


def test_the_parameters_of_the_head_by_hand() -> None:
    def convolution(before: int, after: int, side: int) -> int:
        return before * after * side**2 + 2 * after

    wanted = (
        4 * convolution(WIDTH, CHANNELS, 1)
        + convolution(WIDTH + 4 * CHANNELS, CHANNELS, 3)
        + 3 * convolution(WIDTH, CHANNELS, 1)
        + 3 * convolution(CHANNELS, CHANNELS, 3)
        + convolution(4 * CHANNELS, CHANNELS, 3)
        + CHANNELS * CLASSES
        + CLASSES
    )
    head = UperNetHead(WIDTH, CHANNELS, CLASSES)
    assert sum(p.numel() for p in head.parameters()) == wanted


def test_logits_have_the_size_of_the_finest_map() -> None:
    network = small_segmenter().eval()
    assert network.logits(pictures(1, 64, 96)).shape == (1, CLASSES, 16, 24)


def test_channels_are_by_default_the_width_of_the_backbone() -> None:
    assert small_segmenter(channels=None).decode.fusion[0].out_channels == WIDTH
    assert small_segmenter(channels=7).decode.fusion[0].out_channels == 7


def test_the_losses_are_those_of_both_heads() -> None:
    network = small_segmenter(auxiliary_weight=0.3).eval()
    images, labels = pictures(), some_labels()
    losses = network(images, labels)
    maps = network.pyramid(network.backbone, images)
    torch.testing.assert_close(losses["decode"], pixel_loss(network.logits(images), labels))
    auxiliary = pixel_loss(network.auxiliary(maps[2]), labels)
    torch.testing.assert_close(losses["auxiliary"], 0.3 * auxiliary)
    assert list(losses) == ["decode", "auxiliary"]


def test_drop_path_reaches_the_backbone() -> None:
    network = small_segmenter().eval()
    keep = np.zeros((4, 2, 2))
    plain, dropped = network(pictures(), some_labels()), network(pictures(), some_labels(), keep)
    assert abs(plain["decode"] - dropped["decode"]) > 1e-5


def test_whole_channels_are_dropped_in_training() -> None:
    network = small_segmenter(dropout=0.5)
    inputs: list[Tensor] = []
    network.decode.classifier[1].register_forward_pre_hook(lambda _, x: inputs.append(x[0]))
    torch.manual_seed(0)
    network(pictures(), some_labels())
    empty = (inputs[0] == 0).flatten(2).all(2)
    assert 0.2 < empty.float().mean() < 0.8
    network.eval().logits(pictures())
    assert not (inputs[1] == 0).flatten(2).all(2).any()


def test_the_initial_weights_are_those_of_mmseg() -> None:
    torch.manual_seed(0)
    head = UperNetHead(64, 64, 100)
    weights = dict(head.named_parameters())
    assert weights["fusion.0.weight"].std().item() == pytest.approx(math.sqrt(2 / 576), rel=0.03)
    assert weights["classifier.1.weight"].std().item() == pytest.approx(0.01, rel=0.05)
    assert weights["classifier.1.bias"].abs().max() == 0


def test_one_image_in_training_is_an_error_of_one_line() -> None:
    with pytest.raises(UserError, match=r"^1 image came .* needs 2; use a larger batch"):
        small_segmenter()(pictures(1), some_labels(1))
    small_segmenter(pool_scales=(2, 3))(pictures(1), some_labels(1))
    small_segmenter().eval()(pictures(1), some_labels(1))


def test_layer_decay_finds_embedding_blocks_and_the_rest() -> None:
    network = small_segmenter()
    groups = param_groups_layer_decay(network, weight_decay=0.0, layer_decay=0.5)
    scale = {id(p): group["lr_scale"] for group in groups for p in group["params"]}
    named = dict(network.named_parameters())
    for name, wanted in {
        "backbone.vit.patch_embed.proj.weight": 0.5**5,
        "backbone.vit.blocks.0.mlp.fc1.weight": 0.5**4,
        "backbone.vit.blocks.3.mlp.fc1.weight": 0.5,
        "pyramid.rescale.0.weight": 1,
        "decode.fusion.0.weight": 1,
        "auxiliary.classifier.1.weight": 1,
    }.items():
        assert scale[id(named[name])] == wanted, name


@pytest.mark.parametrize(
    "settings", [{"channels": 0}, {"pool_scales": (0,)}, {"dropout": 1.0}, {"other": 1}]
)
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SegmenterConfig(**settings)


# --- the loss


def test_the_loss_of_some_pixels_by_hand() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [1.0, -1.0, 0.5]]).T.reshape(1, 3, 1, 2)
    labels = torch.tensor([[[2, 0]]])
    first = math.log(1 + math.e + math.e**2) - 2
    second = math.log(math.e + 1 / math.e + math.exp(0.5)) - 1
    assert pixel_loss(logits, labels).item() == pytest.approx((first + second) / 2)
    # A pixel without a class counts 0, and the mean is still that of two pixels.
    for nothing in (-1, -7):
        labels[0, 0, 1] = nothing
        assert pixel_loss(logits, labels).item() == pytest.approx(first / 2)


def test_the_loss_is_taken_at_the_size_of_the_labels() -> None:
    logits = torch.randn(2, CLASSES, 4, 6, generator=torch.Generator().manual_seed(0))
    labels = some_labels(2, 8, 12)
    large = F.interpolate(logits, size=(8, 12), mode="bilinear", align_corners=False)
    by_pixel = -large.log_softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
    wanted = by_pixel[labels >= 0].sum() / labels.numel()
    torch.testing.assert_close(pixel_loss(logits, labels), wanted)
    torch.testing.assert_close(pixel_loss(logits, labels.to(torch.int16)), wanted)


def test_the_loss_is_computed_in_single_precision() -> None:
    logits = torch.randn(2, CLASSES, 4, 4).bfloat16()
    loss = pixel_loss(logits, some_labels(2, 8, 8))
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, pixel_loss(logits.float(), some_labels(2, 8, 8)))


def test_the_mean_of_micro_batches_is_the_loss_of_the_batch() -> None:
    network, images, labels = small_segmenter().eval(), pictures(4), some_labels(4)
    labels[0] = -1  # so the halves differ in the number of pixels with a class
    whole = network(images, labels)
    halves = [network(images[part], labels[part]) for part in (slice(0, 2), slice(2, 4))]
    for name, loss in whole.items():
        mean = torch.stack([half[name] for half in halves]).mean()
        torch.testing.assert_close(loss, mean)


# --- gradients


@pytest.mark.parametrize("norm_levels", [False, True])
@pytest.mark.parametrize("labelled", [True, False])
def test_every_trained_parameter_has_a_gradient(norm_levels: bool, labelled: bool) -> None:
    network = small_segmenter(norm_levels=norm_levels)
    labels = some_labels() if labelled else torch.full((2, SIZE, SIZE), -1)
    losses = network(pictures(), labels)
    torch.stack(list(losses.values())).sum().backward()
    trained = {n: p for n, p in network.named_parameters() if p.requires_grad}
    assert [n for n, p in trained.items() if p.grad is None] == []
    assert not network.backbone.mask_token.requires_grad
    largest = max(float(p.grad.abs().max()) for p in trained.values() if p.grad is not None)
    assert (largest > 0) == labelled


def test_autocast_to_half_precision_gives_nearly_the_same_losses() -> None:
    network = small_segmenter(dropout=0.0)
    plain = network(pictures(), some_labels())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fast = network(pictures(), some_labels())
    for name, loss in plain.items():
        assert fast[name].dtype == torch.float32
        torch.testing.assert_close(fast[name], loss, rtol=0.02, atol=0.02)


def test_some_steps_fit_the_labels_of_two_images() -> None:
    torch.manual_seed(0)
    network = small_segmenter(dropout=0.0)
    images, labels = pictures(), torch.zeros(2, SIZE, SIZE, dtype=torch.int64)
    labels[:, :, SIZE // 2 :] = 1
    images[:, :, :, SIZE // 2 :] += 2
    optimizer = torch.optim.AdamW((p for p in network.parameters() if p.requires_grad), lr=1e-3)
    for _ in range(15):
        loss = torch.stack(list(network(images, labels).values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        found = F.interpolate(network.logits(images), size=(SIZE, SIZE)).argmax(1)
    assert (found == labels).float().mean() > 0.9
