"""The whole detector: losses, gradients, detections."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from timm.optim import param_groups_layer_decay
from torch import Tensor
from torchvision.ops import box_iou

from attmask.models.detection.config import CascadeConfig, DetectorConfig, ProposalsConfig
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import Instances, paste_masks
from tests.models.detection.detectors import (
    SMALL,
    drawn,
    every_box,
    instances,
    small_detector,
)

NAMES = [
    *("rpn_class", "rpn_box"),
    *("class_1", "box_1", "mask_1", "class_2", "box_2", "mask_2", "class_3", "box_3", "mask_3"),
]
CASES: dict[str, list[Instances]] = {
    "no instance": [instances(), instances()],
    "one image with one": [instances((10, 10, 40, 42)), instances()],
    "several": [
        instances((0, 0, 30, 30), (20, 25, 60, 64), (40, 2, 63, 20)),
        instances((5, 5, 50, 50)),
    ],
    "tiny": [instances((10, 10, 10.4, 10.3), (3, 3, 4, 4)), instances((7, 7, 7, 7))],
    "at the border": [instances((0, 0, 64, 5), (60, 50, 64, 64)), instances((0, 0, 64, 64))],
    "smaller images": [
        instances((10, 10, 40, 40), size_hw=(41, 64)),
        instances((1, 1, 9, 9), size_hw=(20, 10)),
    ],
}


def _images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def _losses(network: Detector, truth: Sequence[Instances], seed: int = 3) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return dict(network(_images(len(truth)), truth))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("autocast", [False, True])
def test_losses_are_finite_and_every_trained_parameter_has_a_gradient(
    case: str, autocast: bool
) -> None:
    network = small_detector()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        losses = _losses(network, CASES[case])
    assert list(losses) == NAMES
    assert {loss.dtype for loss in losses.values()} == {torch.float32}
    torch.stack(list(losses.values())).sum().backward()
    trained = {name: p.grad for name, p in network.named_parameters() if p.requires_grad}
    assert [name for name, gradient in trained.items() if gradient is None] == []
    assert all(gradient.isfinite().all() for gradient in trained.values() if gradient is not None)


@pytest.mark.parametrize("classes", [1, 2])
def test_without_instances_boxes_and_masks_have_losses_and_gradients_of_zero(classes: int) -> None:
    network = small_detector(classes)
    losses = _losses(network, CASES["no instance"])
    assert all(loss > 0 for name, loss in losses.items() if "class" in name)
    assert all(loss == 0 for name, loss in losses.items() if "class" not in name)
    torch.stack(list(losses.values())).sum().backward()
    unused = [*network.cascade.mask_heads.parameters(), network.proposals.head.bbox_pred.weight]
    unused += [head.get_parameter("boxes.weight") for head in network.cascade.box_heads]
    assert all(p.grad is not None and not p.grad.any() for p in unused)


def test_with_instances_every_trained_parameter_learns() -> None:
    # All anchors of all levels, of which the coarse ones are larger than the image.
    every = ProposalsConfig(train_count=60, samples=4096, inside_only=False)
    network = small_detector(config=SMALL.model_copy(update={"proposals": every}))
    torch.stack(list(_losses(network, CASES["several"]).values())).sum().backward()
    still = [n for n, p in network.named_parameters() if p.grad is not None and not p.grad.any()]
    assert still == []


def test_what_the_features_do_not_read_is_frozen() -> None:
    frozen = [n for n, p in small_detector().named_parameters() if not p.requires_grad]
    assert frozen == ["backbone.mask_token", "backbone.vit.norm.weight", "backbone.vit.norm.bias"]
    normed = small_detector(config=SMALL.model_copy(update={"norm_levels": True}))
    frozen = [n for n, p in normed.named_parameters() if not p.requires_grad]
    assert frozen == ["backbone.mask_token"]


def test_one_seed_gives_the_same_losses_and_another_other_samples() -> None:
    truth = CASES["several"]
    first, same, other = (_losses(small_detector(), truth, seed) for seed in (3, 3, 4))
    assert all(torch.equal(first[name], same[name]) for name in NAMES)
    assert any(not torch.equal(first[name], other[name]) for name in NAMES)


def test_weights_that_are_not_finite_give_losses_that_are_not_finite_instead_of_an_error() -> None:
    network = small_detector()
    with torch.no_grad():
        network.get_parameter("cascade.box_heads.0.boxes.bias").fill_(torch.nan)
        network.get_parameter("features.fpn.layer_blocks.0.0.bias").fill_(torch.nan)
    assert not torch.stack(list(_losses(network, CASES["several"]).values())).sum().isfinite()
    (found,) = network.eval().detect(_images(1), [(64, 64)])
    assert len(found.boxes) == 0


def test_drop_path_reaches_the_blocks() -> None:
    network, truth = small_detector(), CASES["several"]
    whole = np.ones((2, 2, 2))
    torch.manual_seed(0)
    plain = network(_images(), truth)
    torch.manual_seed(0)
    kept = network(_images(), truth, whole)
    torch.manual_seed(0)
    dropped = network(_images(), truth, 0 * whole)
    assert torch.equal(plain["class_1"], kept["class_1"])
    assert not torch.equal(plain["class_1"], dropped["class_1"])


@pytest.mark.parametrize("patch_size", [8, 14, 16])
def test_detections_lie_in_the_images_best_first(patch_size: int) -> None:
    network = small_detector(patch_size=patch_size, config=every_box()).eval()
    images = torch.randn(2, 3, 224, 224)
    sizes = [(224, 200), (100, 224)]
    for (height, width), found in zip(sizes, network.detect(images, sizes), strict=True):
        assert 0 < len(found.boxes) <= 100
        assert found.boxes.min() >= 0
        assert (found.boxes[:, 2] <= width).all()
        assert (found.boxes[:, 3] <= height).all()
        assert torch.equal(found.scores, found.scores.sort(descending=True).values)
        assert found.masks.shape == (len(found.boxes), 28, 28)
        assert ((found.masks >= 0) & (found.masks <= 1)).all()
        assert set(found.labels.tolist()) <= {0, 1}


def test_detections_do_not_depend_on_the_other_images_of_the_batch() -> None:
    network = small_detector(config=every_box()).eval()
    images, sizes = _images(3), [(64, 64), (50, 40), (64, 64)]
    together = network.detect(images, sizes)
    alone = network.detect(images[1:2], sizes[1:2])
    torch.testing.assert_close(together[1].boxes, alone[0].boxes, rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(together[1].scores, alone[0].scores, rtol=1e-4, atol=1e-5)


def test_detections_under_autocast_are_float32() -> None:
    network = small_detector(1, config=every_box()).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        (found,) = network.detect(_images(1), [(60, 50)])
    assert {found.boxes.dtype, found.scores.dtype, found.masks.dtype} == {torch.float32}


def test_losses_need_training_mode_and_detections_evaluation_mode() -> None:
    with pytest.raises(AssertionError, match="training mode"):
        small_detector().eval()(_images(1), [instances()])
    with pytest.raises(AssertionError, match="evaluation mode"):
        small_detector().detect(_images(1), [(64, 64)])


def test_layer_decay_knows_embedding_blocks_and_the_rest() -> None:
    network = small_detector()
    groups = param_groups_layer_decay(network, layer_decay=0.5)
    scale = {id(p): group["lr_scale"] for group in groups for p in group["params"]}
    named = {name: scale[id(p)] for name, p in network.named_parameters() if id(p) in scale}
    assert named["backbone.vit.patch_embed.proj.weight"] == 0.5**3
    assert named["backbone.vit.blocks.0.attn.qkv.weight"] == 0.5**2
    assert named["backbone.vit.blocks.1.attn.qkv.weight"] == 0.5
    assert {named[name] for name in named if not name.startswith("backbone")} == {1.0}


def test_of_coco_the_paper_s_detector_has_the_parameters_of_its_parts() -> None:
    with torch.device("meta"):
        network = small_detector(80, config=DetectorConfig())
    proposals = (9 * 256 * 256 + 256) + 257 * 3 + 257 * 12
    box = 4 * (9 * 256 * 256 + 2 * 256) + (256 * 49 + 1) * 1024 + 1025 * (81 + 320)
    mask = 4 * (9 * 256 * 256 + 256) + (4 * 256 * 256 + 256) + 257 * 80
    parts = {"proposals": proposals, "cascade": 3 * (box + mask)}
    counts = {n: sum(p.numel() for p in getattr(network, n).parameters()) for n in parts}
    assert counts == parts


def _train(network: Detector, truth: list[Instances], steps: int) -> list[float]:
    images = torch.stack([drawn(t) for t in truth])
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    totals = []
    for step in range(steps):
        torch.manual_seed(step)
        loss = torch.stack(list(network(images, truth).values())).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        totals.append(loss.item())
    return totals


def test_the_loss_of_one_image_falls() -> None:
    truth = [instances((6, 6, 30, 30), (34, 30, 62, 60))]
    totals = _train(small_detector(), truth, 20)
    assert np.mean(totals[-5:]) < 0.7 * np.mean(totals[:5])


@pytest.mark.slow
def test_a_trained_detector_finds_its_squares_with_their_classes_and_masks() -> None:
    config = DetectorConfig(
        channels=32,
        proposals=ProposalsConfig(train_count=200, test_count=100, samples=64),
        cascade=CascadeConfig(samples=64, channels=32, hidden=64, convs=2),
    )
    truth = [
        instances((16, 16, 60, 56), (70, 64, 116, 112), size_hw=(128, 128)),
        instances((60, 8, 110, 50), (10, 66, 60, 120), size_hw=(128, 128)),
    ]
    network = small_detector(config=config)
    _train(network, truth, 120)
    images = torch.stack([drawn(t) for t in truth])
    with torch.no_grad():
        results = network.eval().detect(images, [(128, 128)] * 2)
    for found, wanted in zip(results, truth, strict=True):
        overlaps, best = box_iou(wanted.boxes, found.boxes[:6]).max(dim=1)
        assert (overlaps > 0.7).all()
        assert torch.equal(found.labels[best], wanted.labels)
        masks = paste_masks(found.masks[best], found.boxes[best], (128, 128))
        both, either = (masks & wanted.masks.bool()), (masks | wanted.masks.bool())
        assert (both.sum((1, 2)) / either.sum((1, 2)) > 0.6).all()
