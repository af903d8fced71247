"""A quick search for pictures that may be crops of others, which `align` must confirm.

The lowest frequencies of a whole picture are compared with those of 16 windows of the others. Both
are sorted into cells around some of the pictures, and only what shares a cell is compared, never
all with all.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8
from torch import Tensor
from torch.nn import functional

# What is cut off at the two ends of a side, as shares of it. A copy that lost up to 15 % at each
# end is about 5 % away from one of these, which the lowest frequencies forgive.
_CUTS = ((0.02, 0.02), (0.12, 0.03), (0.03, 0.12), (0.12, 0.12))
WINDOWS = tuple(
    (left, 1 - right, top, 1 - bottom)
    for (left, right), (top, bottom) in itertools.product(_CUTS, _CUTS)
)
"""The edges of each window (left, right, top, bottom) as shares of the width and the height."""

WHOLE = (0.0, 1.0, 0.0, 1.0)
"""The edges of the whole picture."""

_HIGHEST = 7  # sum of the horizontal and the vertical frequency, in half cycles
_ALIKE = 0.85  # cosine of two descriptors that deserve a closer look
_IN_CELL = 5  # candidates of a picture in one cell and window
_IN_ALL = 6  # candidates of a picture
_CELLS_OF_A_WINDOW = 8
_BLOCK = 2048  # pictures that are described at once


@dataclass(frozen=True)
class Candidates:
    """Pairs in which `part`, perhaps flipped, may be a crop of `whole` at about `window`."""

    part: Int64[np.ndarray, " p"]
    whole: Int64[np.ndarray, " p"]
    flipped: Bool[np.ndarray, " p"]
    window: Int64[np.ndarray, " p"]


def candidates(
    thumbnails: UInt8[np.ndarray, "n S S"], group: Int64[np.ndarray, " n"]
) -> Candidates:
    """At most a few originals for each picture, the most similar first, none of its own group."""
    upright = _halved(torch.from_numpy(thumbnails))
    queries = torch.cat([_describe(upright, WHOLE), _describe(upright.flip(2), WHOLE)])
    count = len(thumbnails)
    cells = max(1, 2 * math.isqrt(count))
    centres = queries[torch.arange(cells) * count // cells] if count else queries
    nearest = (queries @ centres.T).argmax(dim=1) if count else torch.empty(0, dtype=torch.long)
    members = torch.argsort(nearest, stable=True).split(
        torch.bincount(nearest, minlength=cells).tolist()
    )
    found = [np.empty((0, 4))]
    for number, window in enumerate(WINDOWS):
        parts = _describe(upright, window)
        for query, whole, score in _alike(queries, members, parts, centres):
            rows = np.stack([query, whole, np.full(len(query), number), -score], axis=1)
            found.append(rows)
    return _best(np.concatenate(found), group)


def _alike(
    queries: Float32[Tensor, "q d"],
    members: Sequence[Int64[Tensor, " _"]],
    windows: Float32[Tensor, "n d"],
    centres: Float32[Tensor, "c d"],
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each cell: queries, pictures with a similar window, and their cosines."""
    if not len(windows):
        return
    few = min(_CELLS_OF_A_WINDOW, len(centres))
    cells = (windows @ centres.T).topk(few, dim=1).indices.flatten()
    order = torch.argsort(cells, stable=True) // few
    sizes = torch.bincount(cells, minlength=len(centres)).tolist()
    for asked, inside in zip(members, order.split(sizes), strict=True):
        cosines = queries[asked] @ windows[inside].T
        places = np.flatnonzero(cosines.numpy() > _ALIKE)
        if len(places) > _IN_CELL * len(asked):  # as in a video, where all are alike
            best = cosines.topk(_IN_CELL, dim=1)
            cosines = torch.full_like(cosines, -1).scatter_(1, best.indices, best.values)
            places = np.flatnonzero(cosines.numpy() > _ALIKE)
        rows, columns = np.divmod(places, max(1, len(inside)))
        yield asked.numpy()[rows], inside.numpy()[columns], cosines.numpy()[rows, columns]


def _best(found: np.ndarray, group: Int64[np.ndarray, " n"]) -> Candidates:
    """Keep each pair once, in its most similar window, and at most a few per picture."""
    found = found[np.argsort(found[:, 3], kind="stable")]
    query, whole, window = found[:, :3].astype(np.int64).T
    count = len(group)
    part, flipped = query % max(count, 1), query >= count
    _, first = np.unique(part * count + whole, return_index=True)
    order = np.sort(first)
    order = order[group[part[order]] != group[whole[order]]]
    order = order[np.argsort(part[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(part[order], part[order])
    order = order[rank < _IN_ALL]
    return Candidates(part[order], whole[order], flipped[order], window[order])


def _halved(thumbnails: UInt8[Tensor, "n S S"]) -> UInt8[Tensor, "n s s"]:
    """Halve the thumbnails, which is enough for the lowest frequencies."""
    blocks = [
        functional.avg_pool2d(block[:, None].float(), 2)[:, 0].round().byte()
        for block in thumbnails.split(_BLOCK)
    ]
    return torch.cat(blocks)


def _describe(
    thumbnails: UInt8[Tensor, "n S S"], window: tuple[float, float, float, float]
) -> Float32[Tensor, "n d"]:
    """The lowest frequencies in a window as unit vectors, free of light and contrast."""
    left, right, top, bottom = window
    side = thumbnails.shape[1]
    frequencies = np.arange(_HIGHEST + 1)
    rows, columns = np.nonzero(np.add.outer(frequencies, frequencies) <= _HIGHEST)
    waves = np.einsum("yv,xu->vuyx", _cosines(side, top, bottom), _cosines(side, left, right))
    mean, waves = waves[0, 0], waves[rows[1:], columns[1:]]
    waves -= mean * (waves.sum(axis=(1, 2)) / mean.sum())[:, None, None]
    # Photographs fall off with the frequency: half of that is given back.
    waves *= np.sqrt(np.hypot(rows[1:], columns[1:]))[:, None, None]
    project = torch.from_numpy(waves.reshape(len(waves), -1).astype(np.float32)).T
    blocks = [block.flatten(1).float() @ project for block in thumbnails.split(_BLOCK)]
    return functional.normalize(torch.cat(blocks), dim=1)


def _cosines(side: int, begin: float, end: float) -> np.ndarray:
    """Cosines over a stretch of a side, each pixel weighted by how much of it lies inside."""
    edges = np.arange(side + 1) / side
    inside = np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0, None) * side
    phase = (edges[:-1] + 0.5 / side - begin) / (end - begin)
    return np.asarray(inside[:, None] * np.cos(np.pi * np.outer(phase, np.arange(_HIGHEST + 1))))
