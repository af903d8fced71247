"""Masking strategies: the teacher's `[CLS]` attention becomes a mask over patches (section 3.2).

    masker = Masker(High(), ratio=(0.1, 0.5), probability=0.5)
    mask = masker(attention, grid=(14, 14), step=step)      # True is hidden

A strategy says *which* patches; the `Masker` says *how many*, of *which views*, and owns the
randomness. Every draw is a function of (seed, step, image, view), so that a batch may be split
over processes or micro-batches without changing a mask. Draws are made on the host, so how many
patches an image hides is known without waiting for the device that the attention is on.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from pydantic import field_validator, model_validator
from torch import Tensor

from attmask.errors import UserError
from attmask.host import to_device
from attmask.mask import Grid, Mask
from attmask.randomness import uniform
from attmask.settings import Config, setting


@dataclass(frozen=True)
class Draws:
    """The random numbers of one call, drawn on the host from counters."""

    seed: int
    step: int
    view: int
    images: Int64[np.ndarray, " B"]
    ratio_range: tuple[float, float]
    ratio_per: Literal["step", "view"]

    def ratio(self, purpose: str) -> Float64[np.ndarray, " B"]:
        """A share r ~ U(a, b) for each image: one for the whole step, or one for each view."""
        low, high = self.ratio_range
        if self.ratio_per == "view":
            return low + (high - low) * self.per_image(purpose)
        one = low + (high - low) * uniform(purpose, self.seed, self.step)
        return np.full(len(self.images), one)

    def per_image(self, purpose: str) -> Float64[np.ndarray, " B"]:
        """One number in [0, 1) for each image of this view."""
        return uniform(purpose, self.seed, self.step, self.images, self.view)

    def several(self, purpose: str, first: int, count: int) -> Float64[np.ndarray, "B {count}"]:
        """The numbers first, first + 1, ... of a sequence for each image of this view."""
        index = np.arange(first, first + count)
        return uniform(purpose, self.seed, self.step, self.images[:, None], self.view, index)


@runtime_checkable
class Strategy(Protocol):
    """Which patches to hide."""

    @property
    def ratio_per(self) -> Literal["step", "view"]:
        """Whether one share is drawn for the whole step or one for each view of each image."""

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        """The hidden patches of each image, on any device."""


def _count(patches: int, ratio: Float64[np.ndarray, " B"]) -> Int64[np.ndarray, " B"]:
    """k = int(n·r): 0.3 of 196 patches are 58."""
    return (patches * ratio).astype(np.int64)


def _rank(values: Float[Tensor, "B N"], *, descending: bool) -> Int[Tensor, "B N"]:
    """The rank of each patch in the sorted order; ties go to the lower index."""
    order = values.argsort(dim=-1, descending=descending, stable=True)
    places = torch.arange(values.shape[-1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def _first(rank: Int[Tensor, "B N"], counts: Int64[np.ndarray, " B"]) -> Bool[Tensor, "B N"]:
    """Select the first `count` patches of each image in the sorted order."""
    return rank < to_device(counts[:, None], rank.device)


@dataclass(frozen=True)
class High:
    """AttMask-High: hide the most attended patches."""

    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        counts = _count(attention.shape[-1], draws.ratio("mask ratio"))
        return Mask(_first(_rank(attention, descending=True), counts), counts)


@dataclass(frozen=True)
class Low:
    """AttMask-Low: hide the least attended patches."""

    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        counts = _count(attention.shape[-1], draws.ratio("mask ratio"))
        return Mask(_first(_rank(attention, descending=False), counts), counts)


@dataclass(frozen=True)
class Hint:
    """AttMask-Hint: hide the most attended patches, but reveal a few of them.

    Reveals int(s·n) of the int(show_max·n) most attended, s = show_max · r' with r' a second,
    independent draw from the ratio range.
    """

    show_max: float = 0.1
    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        patches = attention.shape[-1]
        rank = _rank(attention, descending=True)
        hidden = _count(patches, draws.ratio("mask ratio"))
        shown = _count(patches, self.show_max * draws.ratio("hint ratio"))
        candidate = rank < int(self.show_max * patches)
        lot = to_device(draws.several("hint patch", 0, patches), attention.device).float()
        place = _rank(lot.masked_fill(~candidate, 2.0), descending=False)
        # Every candidate is among the hidden, since show_max is at most the smallest ratio.
        return Mask(_first(rank, hidden) & ~_first(place, shown), hidden - shown)


@dataclass(frozen=True)
class Random:
    """Hide patches drawn uniformly at random."""

    ratio_per: ClassVar[Literal["step", "view"]] = "view"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        patches = attention.shape[-1]
        lot = draws.several("random patch", 0, patches)
        counts = _count(patches, draws.ratio("mask ratio"))
        rank = lot.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
        return Mask(to_device(rank < counts[:, None], attention.device), counts)


@dataclass(frozen=True)
class Block:
    """Block-wise (BEiT): rectangles until n·r patches are hidden or ten in a row do not fit."""

    attempts: int = 10
    aspect_min: float = 0.3
    ratio_per: ClassVar[Literal["step", "view"]] = "view"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        rows, cols = grid
        remaining = draws.ratio("mask ratio") * (rows * cols)
        area_min = float((min(rows, cols) // 3) ** 2)
        hidden = np.zeros((len(remaining), rows, cols), dtype=np.bool_)
        failures = np.zeros(len(remaining), dtype=np.int64)
        attempt = 0
        while (open_ := (remaining > 0) & (failures < self.attempts)).any():
            if attempt % 32 == 0:
                area_u, aspect_u, top_u, left_u = (
                    draws.several(f"block {what}", attempt, 32).T
                    for what in ("area", "aspect", "top", "left")
                )
            u = attempt % 32
            area = np.maximum(area_min + (remaining - area_min) * area_u[u], 0)
            aspect = np.exp(math.log(self.aspect_min) * (1 - 2 * aspect_u[u]))
            height = np.rint(np.sqrt(area * aspect)).astype(np.int64)
            width = np.rint(np.sqrt(area / aspect)).astype(np.int64)
            top = (top_u[u] * (rows - height + 1)).astype(np.int64)
            left = (left_u[u] * (cols - width + 1)).astype(np.int64)
            new = _side(rows, top, height)[:, :, None] & _side(cols, left, width)[:, None] & ~hidden
            added = new.sum((1, 2))
            fits = (height < rows) & (width < cols) & (added > 0) & (added <= remaining) & open_
            hidden |= new & fits[:, None, None]
            remaining = remaining - added * fits
            failures = np.where(fits, 0, failures + 1)
            attempt += 1
        counts = hidden.sum((1, 2), dtype=np.int64)
        return Mask(to_device(hidden.reshape(len(hidden), rows * cols), attention.device), counts)


def _side(
    length: int, start: Int64[np.ndarray, " B"], extent: Int64[np.ndarray, " B"]
) -> Bool[np.ndarray, "B length"]:
    """One side of each rectangle: the indices from start to start + extent."""
    index = np.arange(length)
    return np.asarray((index >= start[:, None]) & (index < (start + extent)[:, None]))


@dataclass(frozen=True)
class Nothing:
    """Hide nothing: plain DINO."""

    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws) -> Mask:
        return Mask(
            torch.zeros_like(attention, dtype=torch.bool), np.zeros(len(attention), dtype=np.int64)
        )


@dataclass(frozen=True)
class Masker:
    """Applies a strategy with a drawn mask ratio to a fraction of the views."""

    strategy: Strategy
    ratio: tuple[float, float] = (0.1, 0.5)
    probability: float = 0.5
    per_image: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check_ratio(self.ratio)
        if not 0 <= self.probability <= 1:
            raise UserError(f"mask probability {self.probability}: wanted 0 to 1, e.g. 0.5")
        if isinstance(self.strategy, Hint):
            check_show_max(self.strategy.show_max, self.ratio)

    def __call__(
        self,
        attention: Float[Tensor, "B N"],
        grid: Grid | None = None,
        *,
        step: int,
        first_image: int = 0,
        view: int = 0,
    ) -> Bool[Tensor, "B N"]:
        """Masks for the images first_image, first_image + 1, ... of a step, seen in one view."""
        return self.mask(attention, grid, step=step, first_image=first_image, view=view).hidden

    def mask(
        self,
        attention: Float[Tensor, "B N"],
        grid: Grid | None = None,
        *,
        step: int,
        first_image: int = 0,
        view: int = 0,
    ) -> Mask:
        """The same, with the number of hidden patches of each image."""
        images, patches = attention.shape
        side = math.isqrt(patches)
        rows, cols = grid or (side, side)
        if rows * cols != patches:
            raise UserError(f"{patches} patches do not fill a grid of {rows} x {cols}; pass grid=")
        _refuse_broken(attention)
        image = np.arange(first_image, first_image + images)
        per = "view" if self.per_image else self.strategy.ratio_per
        draws = Draws(self.seed, step, view, image, self.ratio, per)
        mask = self.strategy(attention, (rows, cols), draws)
        is_masked = draws.per_image("masked view") < self.probability
        hidden = mask.hidden & to_device(is_masked[:, None], attention.device)
        return Mask(hidden, mask.counts * is_masked)


def _refuse_broken(attention: Float[Tensor, "B N"]) -> None:
    """Raise an error for NaN, which would be sorted silently, if the attention is on the CPU.

    A check on a GPU would wait for it at every step."""
    if attention.device.type == "cpu" and not attention.isfinite().all():
        raise UserError(
            "the attention has NaN or infinite values: the network has diverged; start again "
            "with a lower learning rate or in fp32"
        )


def check_ratio(ratio: tuple[float, float]) -> None:
    """Raise an error unless 0 <= a <= b <= 1."""
    low, high = ratio
    if not 0 <= low <= high <= 1:
        raise UserError(f"mask ratio [{low}, {high}]: wanted 0 <= a <= b <= 1, e.g. [0.1, 0.5]")


def check_show_max(show_max: float, ratio: tuple[float, float]) -> None:
    """Raise an error if more patches could be shown than are hidden."""
    if not 0 <= show_max <= ratio[0]:
        raise UserError(
            f"show_max {show_max} must be between 0 and the smallest mask ratio, {ratio[0]}; "
            "lower show_max or raise the ratio"
        )


class MaskingConfig(Config):
    """Which patches are hidden from the student."""

    strategy: Literal["high", "low", "hint", "random", "block", "none"] = setting(
        "high",
        "which patches to hide: high (the most attended), low, hint, random, block or none",
        paper="high",
    )
    ratio: tuple[float, float] = setting(
        (0.1, 0.5), "share of patches to hide, drawn uniformly from [a, b]", paper="[0.1, 0.5]"
    )
    probability: float = setting(
        0.5, "probability that a global view is masked at all", paper="0.5", ge=0, le=1
    )
    show_max: float = setting(
        0.1, "hint: share of the most attended patches that may be shown", paper="0.1"
    )
    per_image: bool = setting(
        False, "draw the ratio for each view of each image, not for each step", paper="false"
    )
    layer: int | None = setting(
        None,
        "transformer block whose attention is used, counted from 1 (null: the last)",
        paper="12",
        ge=1,
    )

    @field_validator("ratio")
    @classmethod
    def _possible_ratio(cls, ratio: tuple[float, float]) -> tuple[float, float]:
        check_ratio(ratio)
        return ratio

    @model_validator(mode="after")
    def _possible_hints(self) -> "MaskingConfig":
        try:
            if self.strategy == "hint":
                check_show_max(self.show_max, self.ratio)
        except UserError as fault:
            raise ValueError(f"masking.{fault}") from fault
        return self

    def build(self, seed: int) -> Masker:
        """Build the masker."""
        strategies: dict[str, Strategy] = {
            "high": High(),
            "low": Low(),
            "hint": Hint(self.show_max),
            "random": Random(),
            "block": Block(),
            "none": Nothing(),
        }
        strategy = strategies[self.strategy]
        return Masker(strategy, self.ratio, self.probability, self.per_image, seed)
