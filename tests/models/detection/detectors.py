"""Small detectors, and images with coloured squares on them."""

import torch
from torch import Tensor

from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.detection.config import (
    CascadeConfig,
    DetectionsConfig,
    DetectorConfig,
    ProposalsConfig,
)
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import Instances

SMALL = DetectorConfig(
    channels=16,
    proposals=ProposalsConfig(train_count=60, test_count=40, samples=32),
    cascade=CascadeConfig(samples=32, channels=16, hidden=32, convs=2),
)


def small_detector(
    classes: int = 2, *, patch_size: int = 16, seed: int = 0, config: DetectorConfig = SMALL
) -> Detector:
    torch.manual_seed(seed)
    settings = BackboneConfig(patch_size=patch_size, width=48, depth=2, heads=3)
    backbone = build_backbone(settings, image_size=4 * patch_size, channels=3)
    return Detector(backbone, classes, config)


def every_box(config: DetectorConfig = SMALL) -> DetectorConfig:
    """The same, where even boxes of little score are detections."""
    return config.model_copy(update={"detections": DetectionsConfig(score=0.0)})


def instances(
    *squares: tuple[float, float, float, float], size_hw: tuple[int, int] = (64, 64)
) -> Instances:
    """Boxes whose masks fill them, of classes 0, 1, 0, 1 ..."""
    masks = torch.zeros(len(squares), *size_hw, dtype=torch.uint8)
    for mask, (x1, y1, x2, y2) in zip(masks, squares, strict=True):
        mask[round(y1) : round(y2), round(x1) : round(x2)] = 1
    return Instances(
        torch.tensor(squares, dtype=torch.float32).reshape(-1, 4),
        torch.arange(len(squares)) % 2,
        masks,
        size_hw,
    )


def drawn(truth: Instances) -> Tensor:
    """An image of these instances, class 0 in red and class 1 in green."""
    image = torch.zeros(3, *truth.size_hw)
    for label, mask in zip(truth.labels, truth.masks, strict=True):
        image[int(label)] += 3.0 * mask
    return image
