"""Detections as a file of results in COCO's format, for its servers and other tools."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attmask import atomic
from attmask.data.coco import BoxedImages
from attmask.evaluation.metrics.detected import Found


def write_results(path: Path, found: Mapping[int, Found], images: BoxedImages) -> None:
    """Write the detections by image, with the ids that the annotation file has."""
    results: list[dict[str, Any]] = []
    for index in sorted(found):
        results += results_of(found[index], images.image_ids[index], images.category_ids)
    atomic.write(path, json.dumps(results))


def results_of(found: Found, image_id: int, category_ids: tuple[int, ...]) -> list[dict[str, Any]]:
    """The detections in one image as COCO lists them."""
    corners = found.boxes.astype(float).tolist()
    results: list[dict[str, Any]] = [
        {
            "image_id": image_id,
            "category_id": category_ids[label],
            "bbox": [round(number, 3) for number in (x1, y1, x2 - x1, y2 - y1)],
            "score": round(score, 5),
        }
        for label, (x1, y1, x2, y2), score in zip(
            found.labels.tolist(), corners, found.scores.tolist(), strict=True
        )
    ]
    if found.rles is None:
        return results
    for result, rle in zip(results, found.rles, strict=True):
        result["segmentation"] = {"size": list(rle["size"]), "counts": rle["counts"].decode()}
    return results
