"""Made-up arrays and pictures of a report: probe images, their attention, embeddings."""

import base64
import io
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from PIL import Image

from attmask.masking import Block, Masker, Random, Strategy

GRID = (14, 14)
PATCHES = GRID[0] * GRID[1]


def array(values: np.ndarray, dtype: str) -> dict[str, Any]:
    kinds = {"f4": "<f4", "i1": "i1", "u1": "u1", "i4": "<i4"}
    if dtype == "bits":
        stored = np.packbits(values.astype(bool), axis=-1)
    else:
        stored = np.ascontiguousarray(values.astype(kinds[dtype]))
    data = base64.b64encode(stored.tobytes()).decode()
    return {"dtype": dtype, "shape": list(values.shape), "data": data}


def data_uri(pixels: np.ndarray) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _scene(rng: np.random.Generator, side: int) -> tuple[np.ndarray, np.ndarray]:
    """An image with one round object, and where the object is."""
    y, x = np.mgrid[0:side, 0:side] / side
    across, down, radius = rng.uniform(0.3, 0.7), rng.uniform(0.3, 0.7), rng.uniform(0.15, 0.3)
    inside = (x - across) ** 2 + (y - down) ** 2 < radius**2
    sky, thing = rng.uniform(40, 200, 3), rng.uniform(40, 255, 3)
    pixels = sky * (0.6 + 0.4 * y[..., None]) + 12 * np.sin(25 * x + 9 * y)[..., None]
    pixels[inside] = (thing * (0.7 + 0.3 * x[..., None]))[inside]
    return pixels.clip(0, 255), inside


def _mask_bits(strategy: Strategy, images: int, ratios: Iterable[float]) -> np.ndarray:
    flat = torch.zeros(images, PATCHES)
    masks = [Masker(strategy, (r, r), probability=1.0)(flat, GRID, step=0) for r in ratios]
    return np.stack([mask.numpy() for mask in masks], axis=1)


def pictures(rng: np.random.Generator, images: int) -> dict[str, Any]:
    scenes = [_scene(rng, 112) for _ in range(images)]
    shares = [inside.reshape(14, 8, 14, 8).mean((1, 3)).ravel() for _, inside in scenes]
    rows = [{"title": "block 12, all heads", "layer": 12, "head": None}]
    rows += [{"title": f"block 12, head {h}", "layer": 12, "head": h} for h in range(1, 7)]
    attention = np.stack(
        [[share + rng.gamma(1, 0.15, PATCHES) for _ in rows] for share in shares]
    ).astype(np.float32)
    ratios = [round(0.05 * i, 2) for i in range(1, 20)]
    centre = rng.normal(0, 1, (2, 24))
    features = np.stack(
        [share[:, None] * centre[0] + (1 - share)[:, None] * centre[1] for share in shares]
    ) + rng.normal(0, 0.25, (images, PATCHES, 24))
    features /= np.linalg.norm(features, axis=-1, keepdims=True)
    epochs = [0, 5, 10, 20, 40, 80]
    colours = np.stack(
        [
            [128 + 100 * (e / 80) * (2 * s[:, None] - 1) * [1, -0.5, 0.3] for s in shares]
            for e in epochs
        ]
    ) + rng.normal(0, 12, (len(epochs), images, PATCHES, 3))
    return {
        "probe": {
            "images": [
                {
                    "name": f"val/dog/{i:03d}.jpg",
                    "label": "dog" if i % 2 else "cat",
                    "src": data_uri(pixels),
                    "object": array(np.rint(255 * share), "u1"),
                }
                for i, ((pixels, _), share) in enumerate(zip(scenes, shares, strict=True))
            ],
            "grid": list(GRID),
            "size": [112, 112],
        },
        "studio": {
            "rows": rows,
            "attention": array(attention / attention.sum(-1, keepdims=True), "f4"),
            "default_row": 0,
            "ratios": ratios,
            "random": array(_mask_bits(Random(), images, ratios), "bits"),
            "block": array(_mask_bits(Block(), images, ratios), "bits"),
            "strategy": "high",
            "ratio": 0.3,
            "show_max": 0.1,
            "seed": 0,
        },
        "similarity": {"features": array(np.rint(127 * features), "i1"), "kept": 0.98},
        "pca": {"epochs": epochs, "colours": array(colours.clip(0, 255), "u1")},
    }


def embeddings(rng: np.random.Generator, images: int, classes: int) -> dict[str, Any]:
    labels = rng.integers(0, classes, images)
    middles = rng.normal(0, 3, (classes, 2))
    points = middles[labels] + rng.normal(0, 0.7, (images, 2))
    tiles = [_scene(rng, 32)[0] for _ in range(images)]
    rows = -(-images // 25)
    sprite = np.zeros((rows * 32, 25 * 32, 3))
    for i, tile in enumerate(tiles):
        top, left = 32 * (i // 25), 32 * (i % 25)
        sprite[top : top + 32, left : left + 32] = tile
    probes = list(range(6))

    def column(title: str, spread: float) -> dict[str, Any]:
        away = np.linalg.norm(points[probes, None] - points, axis=-1)
        order = (away + rng.normal(0, spread, away.shape) + 99 * np.eye(6, images)).argsort(1)
        cosine = [sorted(rng.uniform(0.5, 0.99, 5).round(3), reverse=True) for _ in probes]
        return {"title": title, "indices": order[:, :5].tolist(), "similarity": cosine}

    return {
        "map": {
            "points": array(points, "f4"),
            "names": [f"train/class_{labels[i]:02d}/image_{i:05d}.jpg" for i in range(images)],
            "labels": labels.tolist(),
            "classes": [f"class {c}" for c in range(classes)],
            "sprite": data_uri(sprite),
            "tile": 32,
            "columns": 25,
            "method": "PCA",
            "explained": [0.21, 0.12],
            "titles": None,
        },
        "neighbours": {
            "probes": probes,
            "columns": [column("untrained", 6.0), column("now", 0.1)],
        },
        "odd": {
            "outliers": [
                {"index": i, "score": 3.1 - i / 10, "why": "far from every other image"}
                for i in (7, 9, 30)
            ],
            "copies": [{"first": 11, "second": 12, "score": 0.9991}],
            "unreadable": ["train/broken.jpg"],
        },
    }
