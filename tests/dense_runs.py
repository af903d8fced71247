"""Tiny runs of segmentation and detection, really trained for a step or two."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

import attmask
from tests.runs import SHORT

NAMES = ("ground", "thing")
VALUES = (0, 7)
CATEGORY = {"id": 18, "name": "thing"}
_SIDE = 64
_SHORT = (
    *(word for word in SHORT if not word.startswith("train.batch_size")),
    "train.batch_size=4",
    "train.precision=fp32",
    "schedule.epochs=1",
    "schedule.lr_warmup_steps=1",
    "selection.every_epochs=1",
)
_SMALL_HEADS = (
    "head.channels=16",
    "head.cascade.channels=16",
    "head.cascade.hidden=32",
    "head.cascade.convs=1",
    "head.proposals.train_count=50",
    "head.proposals.test_count=50",
    "head.detections.score=0",
    "head.detections.count=5",
    "augment.sizes=[64]",
    "shown.short_side=64",
    "shown.long_side=128",
)


def write_masked(data: Path) -> Path:
    """Eight images to train on and two to test on, each with a square of value 7 in its mask."""
    for split, count in (("train", 8), ("val", 2)):
        for number in range(count):
            pixels, (x, y) = _picture(number)
            _save(pixels, data / "images" / split / f"{number}.png")
            mask = np.zeros(pixels.shape[:2], dtype=np.uint8)
            mask[y : y + 24, x : x + 24] = VALUES[1]
            _save(mask, data / "masks" / split / f"{number}.png")
    (data / "classes.txt").write_text("\n".join(NAMES) + "\n")
    return data


def write_boxed(data: Path) -> Path:
    """The same squares as objects in COCO's format."""
    for split, count in (("train", 8), ("val", 2)):
        images, annotations = [], []
        for number in range(count):
            pixels, (x, y) = _picture(number)
            height, width = pixels.shape[:2]
            _save(pixels, data / split / f"{number}.png")
            name = f"{number}.png"
            images.append({"id": number, "file_name": name, "width": width, "height": height})
            corners = [x, y, x + 24, y, x + 24, y + 24, x, y + 24]
            annotations.append(
                {
                    "id": number + 1,
                    "image_id": number,
                    "category_id": CATEGORY["id"],
                    "bbox": [x, y, 24, 24],
                    "area": 576,
                    "iscrowd": 0,
                    "segmentation": [corners],
                }
            )
        content = {"images": images, "annotations": annotations, "categories": [CATEGORY]}
        file = data / "annotations" / f"instances_{split}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    return data


def segment_run(start: str | Path, data: Path, out: Path) -> Path:
    words = [*_SHORT, f"augment.size={_SIDE}", "head.channels=16", "head.auxiliary_channels=16"]
    attmask.finetune(start, data, recipe="segment-own", out=out, overrides=words)
    return out


def detect_run(start: str | Path, data: Path, out: Path) -> Path:
    words = [*_SHORT, *_SMALL_HEADS]
    attmask.finetune(start, data, recipe="detect-own", out=out, overrides=words)
    return out


def _picture(number: int) -> tuple[np.ndarray, tuple[int, int]]:
    """A noisy image that is not square, and the corner of its bright square."""
    draws = np.random.default_rng(number)
    pixels = draws.integers(0, 120, (_SIDE, _SIDE + 16, 3), dtype=np.uint8)
    x, y = int(draws.integers(0, 40)), int(draws.integers(0, 40))
    pixels[y : y + 24, x : x + 24] += 130
    return pixels, (x, y)


def _save(pixels: np.ndarray, file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
