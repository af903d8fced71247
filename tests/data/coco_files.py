"""Small data sets in COCO's format, written as real files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE_WH = (20, 12)
CATEGORIES = ({"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}, {"id": 90, "name": "bird"})


def an_image(number: int, **other: Any) -> dict[str, Any]:
    width, height = SIZE_WH
    own = {"id": number, "file_name": f"{number}.png", "width": width, "height": height}
    return {**own, **other}


def an_object(number: int, image: int = 7, **other: Any) -> dict[str, Any]:
    box = {"bbox": [2, 3, 6, 4], "area": 24.0, "iscrowd": 0}
    outline = {"segmentation": [[2, 3, 8, 3, 8, 7, 2, 7]]}
    return {"id": number, "image_id": image, "category_id": 1, **box, **outline, **other}


def write_coco(
    file: Path,
    annotations: Sequence[Mapping[str, Any]],
    images: Sequence[Mapping[str, Any]] = (an_image(7),),
    categories: Sequence[Mapping[str, Any]] = CATEGORIES,
    pictures: Path | None = None,
) -> Path:
    """The annotation file, and its pictures beside it or in another folder."""
    folder = file.parent if pictures is None else pictures
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"images": images, "annotations": annotations, "categories": categories}
    file.write_text(json.dumps(content))
    for image in images:
        path = folder / image.get("file_name", "lost.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (*(min(max(image.get(side, 1), 1), 99) for side in ("height", "width")), 3)
        values = np.random.default_rng(len(path.name)).integers(0, 256, shape, dtype=np.uint8)
        Image.fromarray(values).save(path)
    return file
