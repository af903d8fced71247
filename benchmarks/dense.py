"""One step of dense prediction: our segmenter and our detector, beside torchvision's Mask R-CNN.

ViT-S/16 with UperNet and with Cascade Mask R-CNN (three stages, 512 samples an image, as for COCO)
against Mask R-CNN R50-FPN (one stage), on the same generated images with the same objects: forward,
backward and AdamW update. The networks differ, so this says what a step costs, not which is better.
CPU time and wall time of one thread, best of rounds in which all take turns; memory is the peak of
a process of its own beyond that of its imports.

    OMP_NUM_THREADS=1 python benchmarks/dense.py [--size 256] [--batch 2] [--rounds 3]
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
from torch import Tensor
from torch.optim import AdamW
from torchvision.models.detection import maskrcnn_resnet50_fpn

from attmask.dense.statistics import Statistics
from attmask.dense.step import DenseBatch, compute_gradients, update_
from attmask.detection.batch import DetectBatch
from attmask.hardware import Format, Precision
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.models.detection.config import DetectorConfig
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import Instances
from attmask.models.upernet import Segmenter, SegmenterConfig
from attmask.schedules import Now
from attmask.segmentation.batch import SegmentBatch
from attmask.tuning.config import TunedOptimConfig
from attmask.tuning.optim import build_optimizer
from attmask.tuning.tuner import Tuner

OBJECTS, CLASSES, PIXEL_CLASSES = 6, 80, 150
LR, WEIGHT_DECAY = 1e-4, 0.05

Step = Callable[[Precision, int], None]


def scene(batch: int, size: int) -> tuple[Tensor, tuple[Instances, ...]]:
    """Noise with rectangles, which are the objects."""
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, size, size, generator=draw)
    truth = []
    for image in images:
        corners = torch.rand(OBJECTS, 2, generator=draw) * 0.5 * size
        sides = (0.15 + 0.35 * torch.rand(OBJECTS, 2, generator=draw)) * size
        boxes = torch.cat([corners, corners + sides], dim=1).round()
        masks = torch.zeros(OBJECTS, size, size, dtype=torch.uint8)
        for number, (x1, y1, x2, y2) in enumerate(boxes.int().tolist()):
            masks[number, y1:y2, x1:x2] = 1
            image[number % 3, y1:y2, x1:x2] += 2
        labels = torch.randint(CLASSES, (OBJECTS,), generator=draw)
        truth.append(Instances(boxes, labels, masks, (size, size)))
    return images, tuple(truth)


def our_step(network: Segmenter | Detector, batch: DenseBatch) -> Step:
    """A step as the loop of training computes it."""
    tuner = Tuner(network.train(), drop_path=0.1, ema=None, seed=0)
    optimizer = build_optimizer(network, TunedOptimConfig(layer_decay=0.75))

    def step(precision: Precision, number: int) -> None:
        now, statistics = Now(number, 0, LR), Statistics(network)
        report = compute_gradients(tuner, optimizer, batch, now, precision)
        update_(tuner, optimizer, report, now, precision, statistics, weight_decay=WEIGHT_DECAY)

    return step


def segmenter(batch: int, size: int) -> Step:
    """UperNet; the classes of pixels are those of the rectangles."""
    images, truth = scene(batch, size)
    labels = torch.zeros(batch, size, size, dtype=torch.int64)
    for place, objects in enumerate(truth):
        for label, mask in zip(objects.labels, objects.masks, strict=True):
            labels[place][mask > 0] = label
    network = Segmenter(backbone(size), PIXEL_CLASSES, SegmenterConfig())
    return our_step(network, SegmentBatch(images, labels, torch.arange(batch), 0))


def detector(batch: int, size: int) -> Step:
    """Cascade Mask R-CNN."""
    images, truth = scene(batch, size)
    network = Detector(backbone(size), CLASSES, DetectorConfig())
    return our_step(network, DetectBatch(images, truth, torch.arange(batch), 0))


def backbone(size: int) -> Backbone:
    """ViT-S/16."""
    return build_backbone(BackboneConfig(), image_size=size, channels=3)


def mask_rcnn(batch: int, size: int) -> Step:
    """torchvision's; it counts classes from 1, and keeps the size of the images."""
    images, truth = scene(batch, size)
    targets = [
        {"boxes": each.boxes, "labels": each.labels + 1, "masks": each.masks} for each in truth
    ]
    network = maskrcnn_resnet50_fpn(
        weights=None,
        weights_backbone=None,
        num_classes=CLASSES + 1,
        min_size=size,
        max_size=size,
    ).train()
    optimizer = AdamW(network.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, fused=True)

    def step(precision: Precision, number: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision.autocast():
            losses = network(list(images), targets)
        torch.stack([loss.float() for loss in losses.values()]).sum().backward()
        optimizer.step()

    return step


CONTESTANTS = {
    "UperNet, ViT-S/16": segmenter,
    "Cascade Mask R-CNN, ViT-S/16": detector,
    "torchvision Mask R-CNN, R50-FPN": mask_rcnn,
}


def best_seconds(
    steps: dict[str, Step], precision: Precision, rounds: int
) -> dict[str, tuple[float, float]]:
    """Best CPU time and best wall time of each, in alternating rounds after one that warms up."""
    best: dict[str, tuple[float, float]] = {}
    for number in range(rounds + 1):
        for name, step in steps.items():
            cpu, wall = time.process_time(), time.perf_counter()
            step(precision, number)
            took = time.process_time() - cpu, time.perf_counter() - wall
            if number:
                before = best.get(name, took)
                best[name] = min(took[0], before[0]), min(took[1], before[1])
    return best


def peak_megabytes(name: str, number_format: Format, batch: int, size: int) -> float:
    """Peak memory of two steps in a process of its own, beyond that of its imports."""
    words = [sys.executable, __file__, "--memory-of", name, "--formats", number_format]
    made = subprocess.run(
        [*words, "--batch", str(batch), "--size", str(size)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    return float(made.stdout.split()[-1])


def _status(key: str) -> float:
    text = Path("/proc/self/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def report_memory(name: str, precision: Precision, batch: int, size: int) -> None:
    """What `peak_megabytes` asks for."""
    before = _status("VmRSS")
    step = CONTESTANTS[name](batch, size)
    for number in range(2):
        step(precision, number)
    print(_status("VmHWM") - before)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--formats", nargs="+", default=["fp32", "bf16"])
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cpu, shape = torch.device("cpu"), (asked.batch, asked.size)
    if asked.memory_of:
        report_memory(asked.memory_of, Precision.choose(asked.formats[0], cpu), *shape)
        return
    print(
        f"{date.today()}, {platform.machine()}, torch {torch.__version__}, one thread, "
        f"{asked.batch} images of {asked.size} pixels",
        flush=True,
    )
    torch.manual_seed(0)
    steps = {name: build(*shape) for name, build in CONTESTANTS.items()}
    for number_format in asked.formats:
        best = best_seconds(steps, Precision.choose(number_format, cpu), asked.rounds)
        print(f"{number_format}:")
        for name, (took, wall) in best.items():
            peak = peak_megabytes(name, number_format, *shape)
            print(
                f"  {name:<32}{asked.batch / took:6.3f} images/s of CPU time ({took:.2f} s a step, "
                f"{wall:.2f} s on the clock); peak {peak:5.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()
