"""All images of a report by their embeddings: a map, thumbnails, and images that are odd."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.data import quarantine
from attmask.evaluation.metrics.neighbours import nearest
from attmask.html_report.encoding import encoded, picture_uri
from attmask.html_report.gallery import Gallery
from attmask.reading import MOST_BYTES, read_regular

TILE = 40
"""The side of a thumbnail in pixels."""
COLUMNS = 25
COPY_CORRELATION = 0.95
"""Thumbnails whose pixels are correlated so much show the same."""
OUTLIER = 5.0
"""Robust standard deviations from the median distance at which an image stands apart."""
_NEIGHBOURS = 5
_LISTED = 24
_MOST_OUTLIERS = 12


def map_of(embeddings: Float[Tensor, "M D"], gallery: Gallery) -> dict[str, Any]:
    """The images on the first two principal components of their embeddings of unit length."""
    unit = functional.normalize(embeddings.double(), dim=1)
    centred = unit - unit.mean(dim=0)
    left, lengths, _ = torch.linalg.svd(centred, full_matrices=False)
    points = torch.nn.functional.pad(left[:, :2] * lengths[:2], (0, max(0, 2 - len(lengths))))
    shares = (lengths.square() / lengths.square().sum().clamp_min(1e-30))[:2].tolist()
    return {
        "points": encoded(points.numpy(), "f4"),
        "names": gallery.names,
        "labels": gallery.labels,
        "classes": list(gallery.crops.classes) if gallery.labels is not None else [],
        "sprite": picture_uri(_sprite(gallery), quality=70),
        "tile": TILE,
        "columns": COLUMNS,
        "method": "PCA",
        "explained": shares,
    }


def odd_of(embeddings: Float[Tensor, "M D"], gallery: Gallery, run: Path) -> dict[str, Any]:
    """Images that stand apart, look the same, or cannot be read."""
    count = len(embeddings)
    k = min(_NEIGHBOURS, count - 1)
    if k < 1:
        return {"outliers": [], "copies": [], "unreadable": unreadable_of(run)}
    found = list(nearest(embeddings, embeddings, k, exclude_self=True))
    cosines = torch.cat([cosine for cosine, _ in found]).double()
    indices = torch.cat([index for _, index in found]).tolist()
    return {
        "outliers": _outliers(cosines),
        "copies": _copies(cosines.tolist(), indices, gallery),
        "unreadable": unreadable_of(run),
    }


def unreadable_of(run: Path) -> list[str]:
    """The unreadable images that the training met, each with the reason."""
    try:
        text = read_regular(run / quarantine.FILE, MOST_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [line.replace("\t", ": ", 1) for line in text.split("\n") if line][:_LISTED]


def _outliers(cosines: Float64[Tensor, "M k"]) -> list[dict[str, Any]]:
    """Images whose neighbours are unusually far, by a robust score of the mean cosine."""
    mean = cosines.mean(dim=1)
    median = mean.median()
    spread = 1.4826 * (mean - median).abs().median()
    scores = (median - mean) / spread.clamp_min(1e-6)
    worst = scores.argsort(descending=True)[:_MOST_OUTLIERS].tolist()
    return [
        {
            "index": i,
            "score": float(scores[i]),
            "why": f"mean cosine with its nearest images {mean[i]:.2f}, usually {median:.2f}",
        }
        for i in worst
        if scores[i] > OUTLIER
    ]


def _copies(
    cosines: Sequence[Sequence[float]], indices: Sequence[Sequence[int]], gallery: Gallery
) -> list[dict[str, Any]]:
    """Pairs that are near each other and whose thumbnails are nearly the same."""
    grey = gallery.tiles(16).mean(axis=3).reshape(len(cosines), -1)
    grey -= grey.mean(axis=1, keepdims=True)
    grey /= np.linalg.norm(grey, axis=1, keepdims=True).clip(1e-9)
    pairs: dict[tuple[int, int], float] = {}
    for one, (near, cosine) in enumerate(zip(indices, cosines, strict=True)):
        for other, value in zip(near, cosine, strict=True):
            if float(grey[one] @ grey[other]) > COPY_CORRELATION:
                pairs[min(one, other), max(one, other)] = value
    best = sorted(pairs.items(), key=lambda pair: -pair[1])[:_LISTED]
    return [{"first": one, "second": two, "score": value} for (one, two), value in best]


def _sprite(gallery: Gallery) -> Image.Image:
    tiles = gallery.tiles(TILE)
    rows = -(-len(tiles) // COLUMNS)
    padded = np.zeros((rows * COLUMNS, TILE, TILE, 3), np.uint8)
    padded[: len(tiles)] = tiles
    sheet = padded.reshape(rows, COLUMNS, TILE, TILE, 3).transpose(0, 2, 1, 3, 4)
    return Image.fromarray(sheet.reshape(rows * TILE, COLUMNS * TILE, 3))
