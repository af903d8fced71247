"""Conversion of version 1 cards, which had numbers by free names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attmask.metric import Metric


@dataclass(frozen=True)
class _Name:
    """The pattern of an old name, and its metric today."""

    pattern: str
    key: str
    title: str
    unit: str = "%"
    higher_is_better: bool | None = True


def _of_probes(prefix: str) -> list[_Name]:
    return [
        _Name(r"top-(\d), best epoch", rf"{prefix}.top\1", r"top-\1 accuracy, best epoch"),
        _Name(r"top-(\d), last epoch", rf"{prefix}.top\1_last", r"top-\1 accuracy, last epoch"),
        _Name("rate", f"{prefix}.rate", "best learning rate", "", None),
        _Name(
            r"top-1, paper's rate, best epoch",
            f"{prefix}.top1_paper",
            "top-1 accuracy, paper's rate, best epoch",
        ),
        _Name(
            r"top-1, paper's rate, last epoch",
            f"{prefix}.top1_paper_last",
            "top-1 accuracy, paper's rate, last epoch",
        ),
    ]


_NAMES: Mapping[str, list[_Name]] = {
    "Knn": [
        _Name(r"top-1, k=(\d+)", r"knn.top1@\1", r"top-1 accuracy (k = \1)"),
        _Name(r"top-(\d)", r"knn.top\1", r"top-\1 accuracy"),
    ],
    "FewShot": [_Name(r"((\d+) shots?)", r"fewshot.top1@\2", r"top-1 accuracy, \1")],
    "Linear": _of_probes("linear"),
    "LinearCached": _of_probes("linear_cached"),
    "Clustering": [
        _Name("NMI", "clustering.nmi", "NMI"),
        _Name("ARI", "clustering.ari", "ARI"),
        _Name("cluster accuracy", "clustering.accuracy", "cluster accuracy"),
    ],
    "Retrieval": [
        _Name(r"(\w+) mAP", r"retrieval.\1_map", r"\1 mAP"),
        _Name(r"(\w+) mP@(\d+)", r"retrieval.\1_precision@\2", r"\1 mP@\2"),
    ],
    "Recall": [
        _Name(r"recall@(\d+)", r"recall.recall@\1", r"Recall@\1"),
        _Name("R-precision", "recall.r_precision", "R-precision"),
        _Name("MAP@R", "recall.map_at_r", "MAP@R"),
    ],
    "BackgroundReliance": [
        _Name("original", "backgrounds.original", "original"),
        _Name("mixed (same|next)", r"backgrounds.mixed_\1", r"mixed \1"),
        _Name("mixed random", "backgrounds.mixed_rand", "mixed random"),
        _Name("only foreground", "backgrounds.only_fg", "only foreground"),
        _Name("no foreground", "backgrounds.no_fg", "no foreground", "%", None),
        _Name(
            r"only background \((b|t)(ox|iled)\)",
            r"backgrounds.only_bg_\1",
            r"only background (\1\2)",
            "%",
            None,
        ),
        _Name("background gap", "backgrounds.gap", "background gap", "points", False),
    ],
    "Occlusion": [
        _Name("mean over ratios", "occlusion.top1", "top-1 accuracy, mean over ratios"),
        _Name(r"top-1 at (\S+)", r"occlusion.top1@\1", r"top-1 accuracy at ratio \1"),
    ],
    "ObjectAttention": [
        _Name("attention on the object", "objects.attention", "attention on the object"),
        _Name("area of the object", "objects.area", "area of the object", "%", None),
        _Name("attention / area", "objects.lift", "attention / area", ""),
        _Name(r"object hidden by (\w+)", r"objects.hidden_\1", r"object hidden by \1", "%", None),
        _Name(
            r"patches hidden by (\w+)", r"objects.patches_\1", r"patches hidden by \1", "%", None
        ),
    ],
    "Quality": [
        _Name("rank", "label_free.rank", "effective rank", "", None),
        _Name(
            "rank, per cent of width",
            "label_free.rank_share",
            "effective rank, share of width",
            "%",
            None,
        ),
        _Name("(alignment|uniformity)", r"label_free.\1", r"\1", "", False),
        _Name("assignment entropy", "label_free.entropy", "assignment entropy", "nats", None),
        _Name("prototypes used", "label_free.used", "prototypes used", "prototypes", None),
        _Name("dead prototypes, per cent", "label_free.dead", "dead prototypes", "%", False),
    ],
}
"""Old names by the class of the protocol."""


def metrics_of_numbers(card: Mapping[str, Any]) -> list[Metric]:
    """The metrics of a version 1 card; unknown numbers have no unit and no direction."""
    numbers, kind = card["numbers"], card["protocol"].get("kind", "")
    ks, name_of_task = card["details"].get("k", {}), card["task"]
    found = []
    for name, value in numbers.items():
        if name.endswith(", deviation") and name.removesuffix(", deviation") in numbers:
            continue
        spread = numbers.get(f"{name}, deviation")
        known = next((n for n in _NAMES.get(kind, ()) if re.fullmatch(n.pattern, name)), None)
        if known is None:
            key = f"{_identifier(name_of_task)}.{_identifier(name)}"
            found.append(Metric(key, value, "", None, spread, name))
            continue
        key, title = (re.sub(known.pattern, new, name) for new in (known.key, known.title))
        if name in ks:
            title = f"{title} (k = {ks[name]})"
        found.append(Metric(key, value, known.unit, known.higher_is_better, spread, title))
    return found


def _identifier(name: str) -> str:
    """A name as an identifier."""
    word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return word if word[:1].isalpha() else f"n{word}"
