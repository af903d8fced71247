"""Small data sets of squares on noise, with masks and with COCO's annotations."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.data.coco_files import write_coco

SIZE = 48


def write_masked(root: Path, train: int = 10, val: int = 3) -> Path:
    """Images with a bright square, whose mask has three values."""
    for split, count in (("train", train), ("val", val)):
        for number in range(count):
            pixels, _, mask = _square(number)
            _write(root / f"images/{split}/{number:02}.png", pixels)
            _write(root / f"masks/{split}/{number:02}.png", mask)
    return root


def write_boxed(root: Path, train: int = 10, val: int = 3) -> Path:
    """Images with a bright square, which is an object of one of two classes."""
    categories = ({"id": 1, "name": "bright"}, {"id": 7, "name": "dark"})
    for split, count in (("train", train), ("val", val)):
        images: list[dict[str, Any]] = []
        objects: list[dict[str, Any]] = []
        for number in range(count):
            name = f"{number:02}.png"
            _, (x, y, side), _ = _square(number)
            images.append({"id": number, "file_name": name, "width": SIZE, "height": SIZE})
            corners = [x, y, x + side, y, x + side, y + side, x, y + side]
            objects.append(
                {
                    "id": number + 1,
                    "image_id": number,
                    "category_id": (1, 7)[number % 2],
                    "bbox": [x, y, side, side],
                    "area": float(side**2),
                    "iscrowd": 0,
                    "segmentation": [corners],
                }
            )
        file = root / f"annotations/instances_{split}2017.json"
        write_coco(file, objects, images, categories, pictures=root / f"{split}2017")
        for number in range(count):
            _write(root / f"{split}2017" / f"{number:02}.png", _square(number)[0])
    return root


def _square(number: int) -> tuple[np.ndarray, tuple[int, int, int], np.ndarray]:
    draw = np.random.default_rng(number)
    pixels = draw.integers(0, 80, (SIZE, SIZE, 3), dtype=np.uint8)
    x, y, side = int(draw.integers(2, 20)), int(draw.integers(2, 20)), int(draw.integers(16, 26))
    mask = np.zeros((SIZE, SIZE), dtype=np.uint8)
    mask[y : y + side, x : x + side] = 1 + number % 2
    pixels[mask > 0, number % 2] = 230
    return pixels, (x, y, side), mask


def _write(file: Path, values: np.ndarray) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values).save(file)
