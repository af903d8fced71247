"""Label propagation through a video: the labels of similar patches of earlier frames.

A query is compared only with patches inside its window. Queries are taken in small tiles, and a
tile is multiplied with all patches that one of its windows contains, which wastes less than half
of the products and keeps the matrix multiply large. `benchmarks/video.py` measures it.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional

_TILE = 8  # patches; 4 to 6 waste fewer products in slower multiplies, 13 to 26 waste more


@dataclass(frozen=True)
class Propagation:
    """How labels are propagated: the nearest patches of a window in the context frames."""

    context_frames: int = 7
    radius: int = 12
    """Of the window, in patches; 0 is the whole frame."""
    top_k: int = 5
    temperature: float = 0.1

    def __call__(
        self,
        queries: Float[Tensor, "h w D"],
        keys: Float[Tensor, "T h w D"],
        labels: Float[Tensor, "T h w C"],
    ) -> Float[Tensor, "h w C"]:
        """The soft labels of a frame from those of the context frames; features have length 1."""
        height, width, _ = queries.shape
        radius = self.radius or max(height, width)
        found = labels.new_empty(height, width, labels.shape[-1])
        for left in range(0, width, _TILE):
            columns = _Span.around(left, width, radius)
            # One copy of a column of tiles, of which the rows of each tile are a view.
            near, near_labels = (
                each[:, :, columns.first : columns.last].contiguous() for each in (keys, labels)
            )
            for top in range(0, height, _TILE):
                rows = _Span.around(top, height, radius)
                tile = queries[top : rows.end, left : columns.end]
                found[top : rows.end, left : columns.end] = self._tile(
                    tile.flatten(0, 1),
                    near[:, rows.first : rows.last].flatten(1, 2),
                    near_labels[:, rows.first : rows.last].flatten(1, 2),
                    _outside(rows, columns, radius, queries.device),
                ).view(*tile.shape[:2], -1)
        return found

    def _tile(
        self,
        queries: Float[Tensor, "Q D"],
        keys: Float[Tensor, "T K D"],
        labels: Float[Tensor, "T K C"],
        outside: Bool[Tensor, "Q K"],
    ) -> Float[Tensor, "Q C"]:
        """The labels of some queries from the keys that any of their windows contains."""
        frames, count = keys.shape[:2]
        similarity = torch.bmm(queries.expand(frames, -1, -1), keys.mT)
        similarity.masked_fill_(outside, -torch.inf)
        # The best of each frame first, which needs no copy in another order. One more than top_k
        # tells whether the last place is tied.
        best, place = similarity.topk(min(self.top_k + 1, count), dim=2)
        place += count * torch.arange(frames, device=place.device)[:, None, None]
        best, place = (each.transpose(0, 1).flatten(1) for each in (best, place))
        best, order = best.topk(min(self.top_k + 1, best.shape[1]), dim=1)
        worst = best[:, : self.top_k].amin(dim=1)
        if best.shape[1] > self.top_k and _tied(best[:, self.top_k], worst):
            return self._with_ties(similarity, worst, labels)
        weights = self._weights(best[:, : self.top_k])
        chosen = labels.flatten(0, 1)[place.gather(1, order[:, : self.top_k])]
        return (weights[:, :, None] * chosen).sum(dim=1)

    def _with_ties(
        self,
        similarity: Float[Tensor, "T Q K"],
        worst: Float[Tensor, "Q"],
        labels: Float[Tensor, "T K C"],
    ) -> Float[Tensor, "Q C"]:
        """The same where more than `top_k` keys are as similar as the worst of the best."""
        by_query = similarity.transpose(0, 1).flatten(1)
        kept = by_query.masked_fill(by_query < worst[:, None], -torch.inf)
        return self._weights(kept) @ labels.flatten(0, 1)

    def _weights(self, similarity: Float[Tensor, "Q n"]) -> Float[Tensor, "Q n"]:
        """exp(similarity / temperature), normalised to a sum of 1."""
        return (similarity / self.temperature).softmax(dim=1)


def _tied(next_best: Float[Tensor, "Q"], worst: Float[Tensor, "Q"]) -> bool:
    """Whether a key that is left out is as similar as one that is kept."""
    return bool(((next_best == worst) & worst.isfinite()).any())


@dataclass(frozen=True)
class _Span:
    """A tile along one axis, from `start` to `end`, and its surroundings, `first` to `last`."""

    start: int
    end: int
    first: int
    last: int

    @classmethod
    def around(cls, start: int, length: int, radius: int) -> "_Span":
        """The tile that begins at `start`, with what is within the radius of any of it."""
        end = min(start + _TILE, length)
        return cls(start, end, max(0, start - radius), min(length, end + radius))

    def far(self, radius: int, device: torch.device) -> Bool[Tensor, "tile around"]:
        """Which of the surroundings are beyond the radius of each place of the tile."""
        tile = torch.arange(self.start, self.end, device=device)
        around = torch.arange(self.first, self.last, device=device)
        return (tile[:, None] - around).abs() > radius


def _outside(rows: _Span, columns: _Span, radius: int, device: torch.device) -> Bool[Tensor, "Q K"]:
    """Which keys are outside the window of each query of a tile."""
    down, across = rows.far(radius, device), columns.far(radius, device)
    outside = down[:, None, :, None] | across[None, :, None, :]
    return outside.flatten(2, 3).flatten(0, 1)


class Tracker:
    """Propagates the labels of the first frame through a sequence, frame after frame.

    It keeps the features and soft labels of the first and the last few frames.
    """

    def __init__(
        self,
        propagation: Propagation,
        features: Float[Tensor, "D h w"],
        labels: Float[Tensor, "h w C"],
    ) -> None:
        room = 1 + propagation.context_frames
        self.propagation, self.frames = propagation, 0
        self.keys = features.new_empty(room, *labels.shape[:2], len(features))
        self.labels = features.new_empty(room, *labels.shape)
        self._add(_unit_vectors(features), labels)

    def follow(self, features: Float[Tensor, "D h w"]) -> Float[Tensor, "h w C"]:
        """The soft labels of the next frame, which becomes part of the context."""
        queries = _unit_vectors(features)
        filled = min(self.frames, len(self.keys))
        labels = self.propagation(queries, self.keys[:filled], self.labels[:filled])
        self._add(queries, labels)
        return labels

    def _add(self, queries: Float[Tensor, "h w D"], labels: Float[Tensor, "h w C"]) -> None:
        """Replace the oldest frame but the first; their order does not matter."""
        latest = self.propagation.context_frames
        if self.frames == 0 or latest:
            place = 0 if self.frames == 0 else 1 + (self.frames - 1) % latest
            self.keys[place], self.labels[place] = queries, labels
        self.frames += 1


def _unit_vectors(features: Float[Tensor, "D h w"]) -> Float[Tensor, "h w D"]:
    return functional.normalize(features.permute(1, 2, 0), dim=2)


def labels_of_patches(
    mask: UInt8[np.ndarray, "H W"], grid: tuple[int, int], classes: int
) -> Float[Tensor, "h w C"]:
    """The one-hot labels of the patches: the mask, resized to the grid (nearest)."""
    small = Image.fromarray(mask).resize(grid[::-1], Image.Resampling.NEAREST)
    return functional.one_hot(torch.from_numpy(np.array(small, dtype=np.int64)), classes).float()


def mask_of_labels(
    labels: Float[Tensor, "h w C"], patch_size: int, size_hw: tuple[int, int]
) -> UInt8[np.ndarray, "H W"]:
    """The class of each pixel: labels enlarged (bilinear), each class scaled to 0 to 1, argmax.

    The result is resized to the size of the frame (nearest). A class with one value everywhere
    cannot be scaled and stays as it is.
    """
    maps = functional.interpolate(
        labels.permute(2, 0, 1)[None], scale_factor=float(patch_size), mode="bilinear"
    )[0]
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    scaled = torch.where(high > low, (maps - low) / (high - low), maps)
    mask = Image.fromarray(scaled.argmax(dim=0).to(torch.uint8).cpu().numpy())
    return np.array(mask.resize(size_hw[::-1], Image.Resampling.NEAREST))
