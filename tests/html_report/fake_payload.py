"""Made-up payloads of a report: a realistic one, and one whose every text is hostile."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tests.html_report.fake_pictures import array, embeddings, pictures

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


EVALUATED = [
    ("knn", "knn.top1", "k-NN accuracy"),
    ("linear", "linear.top1", "linear probe accuracy"),
    ("fewshot", "fewshot.top1@5", "accuracy with 5 labels a class"),
]


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
    shared = pictures(rng, 6) | embeddings(rng, images, 12)
    names = [f"{('high', 'random', 'hint', 'block', 'low')[i % 5]}-{i}" for i in range(runs)]
    made = [
        _run(name, i, epochs=epochs, keys=keys, pictures=shared) for i, name in enumerate(names)
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
        "evaluations": {
            "cards": [
                {
                    "groups": {"data": {"images": "3,669", "split": "test"}, "how": {"k": "20"}},
                    "command": f"attmask evaluate runs/{name} {task} --data data/pets",
                }
                for name in names
                for task, _, _ in EVALUATED
            ],
            "rows": [
                {
                    "run": name,
                    "task": task,
                    "images": "data/pets",
                    "key": key,
                    "title": title,
                    "value": round(71.25 - 4 * i + 3 * j, 2),
                    "spread": 0.31 if task == "fewshot" else None,
                    "unit": "%",
                    "higher": True,
                    "best": i == 0,
                    "card": i * len(EVALUATED) + j,
                }
                for i, name in enumerate(names)
                for j, (task, key, title) in enumerate(EVALUATED)
            ],
        },
    }


def without_pictures() -> dict[str, Any]:
    """A report of a run of which only the log is left."""
    payload = realistic(1)
    nothing = ("probe", "studio", "similarity", "pca", "map", "neighbours", "odd")
    payload["runs"][0] |= dict.fromkeys(nothing)
    payload["runs"][0] |= {"series": {}, "timeline": {"sessions": [], "events": []}}
    payload["evaluations"] = {"cards": [], "rows": []}
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
