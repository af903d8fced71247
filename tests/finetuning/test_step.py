"""A step of fine-tuning against a plain transcription of DeiT's, on fixed draws."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.finetuning.augment import seeded
from attmask.finetuning.batch import LabelledBatch
from attmask.finetuning.classifier import Classifier
from attmask.finetuning.config import FinetuneConfig
from attmask.finetuning.schedules import FinetuneNow
from attmask.finetuning.step import (
    Finetuner,
    Targets,
    compute_gradients,
    update_,
)
from attmask.hardware import Precision
from attmask.models.backbone import drop_path_rates
from attmask.models.blocks import drop_path
from attmask.optim import set_rates
from attmask.randomness import hashed
from attmask.tuning.config import TunedOptimConfig
from attmask.tuning.optim import build_optimizer
from tests.finetuning.networks import SIZE, recipe, small_classifier

CPU = torch.device("cpu")
FP32 = Precision.choose("fp32", CPU)
CLASSES = 5


def batch(images: int = 8, seed: int = 1) -> LabelledBatch:
    generator = torch.Generator().manual_seed(seed)
    return LabelledBatch(
        torch.randn(images, 3, SIZE, SIZE, generator=generator),
        torch.randint(CLASSES, (images,), generator=generator),
        torch.arange(images),
        0,
    )


def finetuner(network: Classifier, config: FinetuneConfig, **settings: object) -> Finetuner:
    known: dict[str, object] = {
        "drop_path": config.network.drop_path,
        "class_weights": None,
        "multi_label": False,
        "ema": None,
        "seed": config.seed,
    }
    return Finetuner(network, **{**known, **settings})  # type: ignore[arg-type]


def targets(config: FinetuneConfig) -> Targets:
    return Targets(config.augment, CLASSES, multi_label=False, seed=config.seed)


def deit_mix(images: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor, str]:
    """Mixup 0.8 or CutMix 1, each for half of the batches, and smoothed targets, written out."""
    assert np.random.rand() < 1.0
    height, width = images.shape[-2:]
    if np.random.rand() < 0.5:
        kind, lam = "cutmix", float(np.random.beta(1.0, 1.0))
        ratio = math.sqrt(1 - lam)
        cut_h, cut_w = int(height * ratio), int(width * ratio)
        y, x = np.random.randint(0, height), np.random.randint(0, width)
        top, bottom = np.clip([y - cut_h // 2, y + cut_h // 2], 0, height)
        left, right = np.clip([x - cut_w // 2, x + cut_w // 2], 0, width)
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = images.flip(0)[:, :, top:bottom, left:right]
        lam = 1 - (bottom - top) * (right - left) / (height * width)
    else:
        kind, lam = "mixup", float(np.random.beta(0.8, 0.8))
        mixed = lam * images + (1 - lam) * images.flip(0)
    classes = torch.eye(CLASSES) * (1 - smoothing) + smoothing / CLASSES
    return mixed, lam * classes[labels] + (1 - lam) * classes[labels.flip(0)], kind


def plain_logits(network: Classifier, images: Tensor, keep: np.ndarray) -> Tensor:
    """timm's modules called one after the other, with the factors of drop path written out."""
    vit: Any = network.backbone.vit
    x = vit.patch_embed(images)
    x = torch.cat([vit.cls_token.expand(len(x), -1, -1), x], dim=1) + vit.pos_embed
    for block, factors in zip(vit.blocks, torch.from_numpy(keep).float(), strict=True):
        x = x + factors[0][:, None, None] * block.attn(block.norm1(x))
        x = x + factors[1][:, None, None] * block.mlp(block.norm2(x))
    logits: Tensor = network.head(vit.norm(x)[:, 0])
    return logits


@pytest.mark.parametrize("step", range(6))
def test_a_step_of_cifar10_equals_a_transcription_of_deits(step: int) -> None:
    config, shown = recipe("cifar10"), batch()
    network, plain = small_classifier(CLASSES), small_classifier(CLASSES)
    plain.load_state_dict(network.state_dict())
    now = FinetuneNow(step, 0, 1e-5)
    tuned = finetuner(network, config)
    optimizer = build_optimizer(network, config.optim)
    report = compute_gradients(tuned, optimizer, shown, targets(config), now, FP32)

    with seeded(int(hashed("mixup", config.seed, step, 0))):
        mixed, wanted, _ = deit_mix(batch().images, shown.labels, 0.1)
    keep = drop_path(
        drop_path_rates(plain.backbone, 0.1),
        seed=config.seed,
        step=step,
        images=np.arange(8),
        views=np.zeros(8, dtype=np.int64),
    )
    loss = -(wanted * plain_logits(plain, mixed, keep).log_softmax(1)).sum(1).mean()
    loss.backward()
    assert report.mean_loss.item() == pytest.approx(loss.item(), rel=1e-5)
    theirs = dict(plain.named_parameters())
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(parameter.grad, theirs[name].grad, rtol=1e-5, atol=1e-6)

    # Adam divides by the gradient, so rounding of those near zero would show in the weights.
    for name, parameter in network.named_parameters():
        if parameter.grad is not None:
            theirs[name].grad = parameter.grad.clone()
    update_(tuned, optimizer, report, now, FP32, weight_decay=0.05)
    decayed = [p for n, p in plain.named_parameters() if p.ndim > 1 and p.requires_grad]
    others = [p for n, p in plain.named_parameters() if p.ndim <= 1]
    torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": others, "weight_decay": 0.0}],
        lr=1e-5,
    ).step()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter, theirs[name], rtol=1e-5, atol=1e-7)


def test_both_ways_to_mix_occur() -> None:
    kinds = set()
    for step in range(6):
        with seeded(int(hashed("mixup", 0, step, 0))):
            kinds.add(deit_mix(batch().images, batch().labels, 0.1)[2])
    assert kinds == {"mixup", "cutmix"}


def rates(config: TunedOptimConfig, network: Classifier) -> dict[str, float]:
    """The factor of the learning rate of each parameter."""
    owner = {id(p): n for n, p in network.named_parameters()}
    groups = build_optimizer(network, config).param_groups
    return {owner[id(p)]: group["lr_scale"] for group in groups for p in group["params"]}


def test_layer_decay_is_ibots_table() -> None:
    """0.75 to the power of 13 for the embedding, 12 to 1 for the blocks, 1 for norm and head."""
    by_hand = {
        "patch_embed.proj.weight": 0.023757264018058777,
        "pos_embed": 0.023757264018058777,
        "cls_token": 0.023757264018058777,
        "blocks.0.attn.qkv.weight": 0.03167635202407837,
        "blocks.5.mlp.fc1.bias": 0.13348388671875,
        "blocks.10.norm1.weight": 0.5625,
        "blocks.11.attn.proj.bias": 0.75,
        "norm.weight": 1.0,
        "norm.bias": 1.0,
    }
    found = rates(recipe("imagenet").optim, small_classifier(CLASSES, depth=12))
    for name, factor in by_hand.items():
        assert found[f"backbone.vit.{name}"] == pytest.approx(factor, rel=1e-12), name
    assert found["head.weight"] == found["head.bias"] == 1.0


def test_the_learning_rate_of_every_group_is_the_scheduled_one_times_its_factor() -> None:
    network = small_classifier(CLASSES)
    optimizer = build_optimizer(network, recipe("imagenet").optim)
    set_rates(optimizer, lr=4e-3, weight_decay=0.05)
    for group in optimizer.param_groups:
        assert group["lr"] == 4e-3 * group["lr_scale"]
        assert group["weight_decay"] == (0.05 if group["decayed"] else 0.0)


def is_decayed(network: Classifier, config: TunedOptimConfig) -> Callable[[str], bool]:
    owner = {id(p): n for n, p in network.named_parameters()}
    groups = build_optimizer(network, config).param_groups
    known = {owner[id(p)]: g["decayed"] for g in groups for p in g["params"]}
    return lambda name: bool(known[name])


def test_positions_and_cls_are_decayed_in_cifar_and_not_in_imagenet() -> None:
    network = small_classifier(CLASSES)
    cifar = is_decayed(network, recipe("cifar10").optim)
    imagenet = is_decayed(network, recipe("imagenet").optim)
    for name in ("pos_embed", "cls_token"):
        assert cifar(f"backbone.vit.{name}")
        assert not imagenet(f"backbone.vit.{name}")
    for decides in (cifar, imagenet):
        assert decides("head.weight")
        assert not decides("head.bias")
        assert not decides("backbone.vit.norm.weight")


def test_a_tensor_without_decay_that_is_not_there_is_refused() -> None:
    wrong = TunedOptimConfig(no_decay=("pos_embedding",))
    with pytest.raises(UserError, match="the network has no tensor pos_embedding; use"):
        build_optimizer(small_classifier(CLASSES), wrong)


def test_micro_batches_give_the_gradients_of_the_whole_batch() -> None:
    config, found = recipe("cifar10"), []
    for parts in (1, 4):
        network = small_classifier(CLASSES)
        optimizer = build_optimizer(network, config.optim)
        now = FinetuneNow(0, 0, 1e-5)
        tuned = finetuner(network, config)
        report = compute_gradients(
            tuned, optimizer, batch(), targets(config), now, FP32, accumulate=parts
        )
        found.append([report.mean_loss, *(p.grad for p in network.parameters() if p.requires_grad)])
    for whole, split in zip(*found, strict=True):
        torch.testing.assert_close(whole, split, rtol=1e-4, atol=1e-6)


def test_a_frozen_backbone_stays_and_the_classifier_learns() -> None:
    config = recipe("own")
    network = small_classifier(CLASSES)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    optimizer = build_optimizer(network, config.optim)
    now = FinetuneNow(0, 0, 1e-2, backbone_frozen=True)
    tuned = finetuner(network, config)
    report = compute_gradients(tuned, optimizer, batch(), targets(config), now, FP32)
    update_(tuned, optimizer, report, now, FP32, weight_decay=0.05)
    for name, parameter in network.named_parameters():
        assert torch.equal(before[name], parameter) == name.startswith("backbone."), name


def test_a_moving_average_is_what_is_evaluated() -> None:
    config = recipe("own")
    network = small_classifier(CLASSES)
    before = network.head.weight.detach().clone()
    optimizer = build_optimizer(network, config.optim)
    tuned, now = finetuner(network, config, ema=0.75), FinetuneNow(10, 0, 1e-2)
    report = compute_gradients(tuned, optimizer, batch(), targets(config), now, FP32)
    update_(tuned, optimizer, report, now, FP32, weight_decay=0.0)
    averaged = tuned.evaluated.head.weight
    torch.testing.assert_close(averaged, 0.75 * before + 0.25 * network.head.weight)


def test_weights_of_classes_make_rare_ones_count() -> None:
    config, network = recipe("own"), small_classifier(CLASSES)
    weights = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0])
    weighted = finetuner(network, config, class_weights=weights)
    logits, wanted = torch.randn(8, CLASSES), torch.eye(CLASSES)[batch().labels]
    by_hand = -(weights * wanted * logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(weighted.loss(logits, wanted), by_hand)


def test_several_labels_have_a_binary_loss_each() -> None:
    config, network = recipe("own"), small_classifier(CLASSES)
    several = finetuner(network, config, multi_label=True)
    logits, wanted = torch.randn(8, CLASSES), torch.randint(2, (8, CLASSES)).float()
    by_hand = nn.BCELoss()(logits.sigmoid(), wanted)
    torch.testing.assert_close(several.loss(logits, wanted), by_hand)


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    config, network = recipe("own"), small_classifier(CLASSES)
    optimizer, now = build_optimizer(network, config.optim), FinetuneNow(0, 0, 1e-2)
    tuned, shown = finetuner(network, config), batch()
    shown.images[0, 0, 0, 0] = torch.nan
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    report = compute_gradients(tuned, optimizer, shown, targets(config), now, FP32)
    update = update_(tuned, optimizer, report, now, FP32, weight_decay=0.05)
    assert not update.finite
    assert all(torch.equal(before[name], p) for name, p in network.named_parameters())
