"""Made-up payloads of a report: a realistic one, and one whose every text is hostile."""

import base64
import io
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from PIL import Image

from attmask.masking import Block, Masker, Random, Strategy

GRID = (14, 14)
PATCHES = GRID[0] * GRID[1]
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)>\"'`\n\u2028\u202e\u200f${7*7}"
    "</script>&amp;" + "x" * 500
)

METRICS = {
    "knn.top1": ("k-NN accuracy", "%", True, "accuracy"),
    "knn.top5": ("k-NN top-5 accuracy", "%", True, "accuracy"),
    "loss": ("loss", "", False, "loss"),
    "loss.cls": ("loss of the [CLS] token", "", False, "loss"),
    "loss.patch": ("loss of the patches", "", False, "loss"),
    "health.rank": ("effective rank of the teacher's features", "", True, "health"),
    "health.spread": ("spread of the teacher's features", "", None, "health"),
    "health.entropy": ("entropy of the [CLS] attention (1: uniform)", "", None, "health"),
    "objects.jaccard": ("attention on objects", "%", True, "objects"),
    "schedule.lr": ("learning rate", "", None, "schedule"),
    "schedule.momentum": ("momentum of the teacher", "", None, "schedule"),
    "speed.images_per_second": ("speed", "images/s", True, "speed"),
    "speed.waiting": ("waiting for data", "%", False, "speed"),
}


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


def _series(
    rng: np.random.Generator, key: str, share: np.ndarray, speed: float, epochs: int
) -> np.ndarray:
    noise = rng.normal(0, 1, len(share))
    known = {
        "knn.top1": 12 + 60 * (1 - np.exp(-4 * speed * share)) + 0.5 * noise,
        "knn.top5": 30 + 60 * (1 - np.exp(-4 * speed * share)) + 0.4 * noise,
        "loss": 4 + 7 * np.exp(-3 * speed * share) + 0.08 * noise,
        "health.entropy": 1 - 0.4 * share + 0.01 * noise,
        "schedule.lr": 5e-4 * np.minimum(share * 10, 0.5 + 0.5 * np.cos(math.pi * share)),
        "schedule.momentum": 1 - 0.004 * (0.5 + 0.5 * np.cos(math.pi * share)),
        "speed.images_per_second": 1200 + 40 * noise,
        "speed.waiting": np.abs(2 + 2 * noise),
    }
    return np.asarray(known.get(key, 20 + 5 * share * speed + 0.3 * noise))


def _mask_bits(strategy: Strategy, images: int, ratios: Iterable[float]) -> np.ndarray:
    flat = torch.zeros(images, PATCHES)
    masks = [Masker(strategy, (r, r), probability=1.0)(flat, GRID, step=0) for r in ratios]
    return np.stack([mask.numpy() for mask in masks], axis=1)


def _pictures(rng: np.random.Generator, images: int) -> dict[str, Any]:
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


def _embeddings(rng: np.random.Generator, images: int, classes: int) -> dict[str, Any]:
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


def _timeline(steps: int, hours: float) -> dict[str, Any]:
    half, cut = steps // 2, 0.45 * hours
    return {
        "sessions": [
            {
                "start": "2026-11-01T08:00:00+00:00",
                "end": "2026-11-01T13:00:00+00:00",
                "from_hours": 0.0,
                "to_hours": cut,
                "from_step": 0,
                "to_step": half,
                "ended": "killed",
                "where": "node-3, 2 processes",
            },
            {
                "start": "2026-11-02T08:00:00+00:00",
                "end": "2026-11-02T15:00:00+00:00",
                "from_hours": cut,
                "to_hours": hours,
                "from_step": half,
                "to_step": steps,
                "ended": "finished",
                "where": "node-3, 4 processes",
            },
        ],
        "events": [
            {"time": "2026-11-01T08:00:00+00:00", "hours": 0.0, "step": 0, "kind": "start"}
            | {"text": "training started on 2 processes"},
            {"time": "2026-11-01T13:00:00+00:00", "hours": cut, "step": half, "kind": "kill"}
            | {"text": "the process ended without saving; 4 minutes were lost"},
            {"time": None, "hours": 0.7 * hours, "step": int(0.7 * steps), "kind": "skip"}
            | {"text": "one step was not finite and was skipped"},
            {"time": "2026-11-02T15:00:00+00:00", "hours": hours, "step": steps, "kind": "finish"}
            | {"text": "training finished"},
        ],
    }


def _about(strategy: str) -> dict[str, Any]:
    return {
        "recipe": "vit_small_imagenet",
        "changes": [
            {"key": "masking.strategy", "recipe": "high", "run": strategy},
            {"key": "train.batch_size", "recipe": "1024", "run": "256"},
        ],
        "config": [
            {
                "key": f"group{i // 8}.setting_{i}",
                "value": str(i),
                "help": "what it does",
                "paper": "1",
            }
            for i in range(60)
        ],
        "facts": [
            {"group": "images", "name": "folder", "value": "data/pets, 7,390 images"},
            {"group": "hardware", "name": "device", "value": "1 × NVIDIA A100, 80 GB"},
            {"group": "software", "name": "torch", "value": "2.14.0"},
        ],
        "command": f"attmask pretrain data/pets masking.strategy={strategy} train.batch_size=256",
    }


def _run(
    name: str, number: int, *, epochs: int, keys: Iterable[str], pictures: dict[str, Any]
) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    evaluated = np.linspace(0, epochs, min(epochs, 48) + 1)
    logged = np.linspace(epochs / 300, epochs, max(300, epochs))
    hours, speed = 12.0 + number, 1 - 0.12 * (number % 5)

    def axis(x: np.ndarray) -> dict[str, Any]:
        return {
            "epoch": array(x, "f4"),
            "hours": array(x / epochs * hours, "f4"),
            "step": array(x * 100, "i4"),
        }

    series = {}
    for key in keys:
        at = 1 if key.startswith(("knn", "objects")) else 0
        share = (evaluated if at else logged) / epochs
        values = _series(rng, key, share, speed, epochs)
        series[key] = {"axis": at, "values": array(values, "f4")}
    strategy = ("high", "random", "hint", "block", "low")[number % 5]
    return {
        "name": name,
        "folder": f"runs/{name}",
        "state": "finished",
        "headline": f"ViT-S/16, {epochs} epochs, masking {strategy}",
        "epochs": epochs,
        "steps": epochs * 100,
        "step": epochs * 100,
        "verdict": {
            "level": "good",
            "sentence": "It learns: its features beat raw pixels and an untrained network by far.",
            "proofs": [
                {
                    "question": "Is it learning?",
                    "level": "good",
                    "answer": "The loss fell from 11.0 to 4.3 and still falls.",
                    "metric": "loss",
                },
                {
                    "question": "Is it healthy?",
                    "level": "fair",
                    "answer": "The rank of the features grew slowly in the last ten epochs.",
                    "metric": "health.rank",
                },
                {
                    "question": "Is it better than untrained and raw pixels?",
                    "level": "good",
                    "answer": "k-NN: 71.2 % against 24.1 % untrained and 18.3 % of raw pixels.",
                    "metric": "knn.top1",
                },
            ],
        },
        "warnings": [
            {
                "level": "fair",
                "text": "One step was skipped.",
                "reason": "Its gradients were not finite; single ones do no harm.",
            }
        ],
        "axes": [axis(logged), axis(evaluated)],
        "series": series,
        "levels": [{"metric": "knn.top1", "value": 18.3, "title": "raw pixels"}],
        **pictures,
        "timeline": _timeline(epochs * 100, hours),
        "about": _about(strategy),
    }


def realistic(
    runs: int = 2, *, epochs: int = 48, metrics: int = len(METRICS), images: int = 120
) -> dict[str, Any]:
    """A report of runs that went well."""
    keys = dict(METRICS)
    for i in range(len(METRICS), metrics):
        keys[f"health.more_{i}"] = (f"another measure, number {i}", "", None, "health")
    rng = np.random.default_rng(0)
    pictures = _pictures(rng, 6) | _embeddings(rng, images, 12)
    names = [f"{('high', 'random', 'hint', 'block', 'low')[i % 5]}-{i}" for i in range(runs)]
    made = [
        _run(name, i, epochs=epochs, keys=keys, pictures=pictures) for i, name in enumerate(names)
    ]
    shown = ["knn.top1", "knn.top5", "loss"]
    comparison = {
        "metric": "knn.top1",
        "baseline": names[-1],
        "sentences": [f"{names[0]} reaches the last accuracy of {names[-1]} 35 % earlier."],
        "differences": [
            {"key": "masking.strategy", "values": [name.split("-")[0] for name in names]},
            {"key": "seed", "values": [str(i) for i in range(runs)]},
        ],
        "table": [
            {"run": name, "values": {key: 70.0 - 3 * i + j for j, key in enumerate(shown)}}
            for i, name in enumerate(names)
        ],
        "keys": shown,
    }
    return {
        "version": 1,
        "made": "2026-11-18T11:00:00+00:00",
        "attmask": "0.1.0",
        "title": "Which patches to hide",
        "command": "attmask report runs/* --out report.html",
        "metrics": {
            key: dict(zip(("title", "unit", "higher", "group"), values, strict=True))
            for key, values in keys.items()
        },
        "runs": made,
        "comparison": comparison if runs > 1 else None,
        "evaluations": [
            {
                "run": name,
                "task": task,
                "key": key,
                "title": title,
                "value": round(71.25 - 4 * i + 3 * j, 2),
                "spread": 0.31 if task == "fewshot" else None,
                "unit": "%",
                "higher": True,
                "best": i == 0,
                "card": {"data": {"images": "3,669", "split": "test"}, "how": {"k": "20"}},
                "command": f"attmask evaluate runs/{name} --task {task} --data data/pets",
            }
            for i, name in enumerate(names)
            for j, (task, key, title) in enumerate(
                [
                    ("knn", "knn.top1", "k-NN accuracy"),
                    ("linear", "linear.top1", "linear probe accuracy"),
                    ("fewshot", "fewshot.top1@5", "accuracy with 5 labels a class"),
                ]
            )
        ],
    }


def without_pictures() -> dict[str, Any]:
    """A report of a run of which only the log is left."""
    payload = realistic(1)
    nothing = ("probe", "studio", "similarity", "pca", "map", "neighbours", "odd")
    payload["runs"][0] |= dict.fromkeys(nothing)
    payload["runs"][0] |= {"series": {}, "timeline": {"sessions": [], "events": []}}
    payload["evaluations"] = []
    return payload


def hostile() -> dict[str, Any]:
    """A report whose every text tries to become markup."""
    payload: dict[str, Any] = _poisoned(realistic(2))
    for number, run in enumerate(payload["runs"]):
        run["name"] = f"{number}{HOSTILE}"
    return payload


KEPT = {"dtype", "data", "src", "sprite", "strategy", "group", "made", "start", "end", "time"} | {
    "level",
    "version",
    "metric",
    "key",
}


def _poisoned(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _poisoned(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        keys = name == "keys"
        return value if keys else [_poisoned(inner, name) for inner in value]
    if isinstance(value, str) and name not in KEPT:
        return HOSTILE if value in ("now", "untrained") else f"{value}{HOSTILE}"
    return value
