"""What to hide: from the teacher's `[CLS]` attention to a mask over patches (section 3.2).

    masker = Masker(High(), ratio=(0.1, 0.5), probability=0.5)
    mask = masker(attention, grid=(14, 14), step=step)      # True is hidden

A strategy says *which* patches; the `Masker` says *how many*, of *which views*, and owns the
randomness. Every draw is a function of (seed, step, image, view), so that a batch may be split
over processes or micro-batches without changing a mask.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from pydantic import field_validator, model_validator
from torch import Tensor

from attmask.errors import UserError
from attmask.randomness import uniform
from attmask.settings import Config, setting

Grid = tuple[int, int]


@dataclass(frozen=True)
class Draws:
    """The random numbers of one call, on the CPU: the same counters always give the same."""

    seed: int
    step: int
    view: int
    images: Int[Tensor, "B"]
    ratio_range: tuple[float, float]
    ratio_per: Literal["step", "view"]

    def ratio(self, purpose: str) -> Float[Tensor, "B"]:
        """A share r ~ U(a, b) for each image: one for the whole step, or one for each view."""
        low, high = self.ratio_range
        if self.ratio_per == "view":
            return low + (high - low) * self.per_image(purpose)
        one = uniform(purpose, self.seed, self.step)
        return (low + (high - low) * one).expand(len(self.images))

    def per_image(self, purpose: str) -> Float[Tensor, "B"]:
        """One number in [0, 1) for each image of this view."""
        return uniform(purpose, self.seed, self.step, self.images, self.view)

    def several(self, purpose: str, first: int, count: int) -> Float[Tensor, "B {count}"]:
        """The numbers first, first + 1, ... of a sequence for each image of this view."""
        index = torch.arange(first, first + count)
        return uniform(purpose, self.seed, self.step, self.images[:, None], self.view, index)


@runtime_checkable
class Strategy(Protocol):
    """Which patches to hide."""

    @property
    def ratio_per(self) -> Literal["step", "view"]:
        """Whether one share is drawn for the whole step or one for each view of each image."""

    def __call__(
        self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws
    ) -> Bool[Tensor, "B N"]:
        """The hidden patches of each image, on any device."""


def _count(values: Float[Tensor, "B N"], ratio: Float[Tensor, "B"]) -> Int[Tensor, "B 1"]:
    """k = int(n·r): 0.3 of 196 patches are 58."""
    return (values.shape[-1] * ratio).long()[:, None].to(values.device)


def _rank(values: Float[Tensor, "B N"], *, descending: bool) -> Int[Tensor, "B N"]:
    """The place of each patch in the sorted order; of equal values the lower index comes first."""
    order = values.argsort(dim=-1, descending=descending, stable=True)
    places = torch.arange(values.shape[-1], device=values.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


@dataclass(frozen=True)
class High:
    """AttMask-High: hide the most attended patches."""

    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(
        self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws
    ) -> Bool[Tensor, "B N"]:
        return _rank(attention, descending=True) < _count(attention, draws.ratio("mask ratio"))


@dataclass(frozen=True)
class Low:
    """AttMask-Low: hide the least attended patches."""

    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(
        self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws
    ) -> Bool[Tensor, "B N"]:
        return _rank(attention, descending=False) < _count(attention, draws.ratio("mask ratio"))


@dataclass(frozen=True)
class Hint:
    """AttMask-Hint: hide the most attended patches but for a few of the very first.

    Reveals int(s·n) of the int(show_max·n) most attended, s = show_max · r' with r' a second,
    independent draw from the ratio range.
    """

    show_max: float = 0.1
    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(
        self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws
    ) -> Bool[Tensor, "B N"]:
        patches = attention.shape[-1]
        rank = _rank(attention, descending=True)
        hidden = rank < _count(attention, draws.ratio("mask ratio"))
        candidate = rank < int(self.show_max * patches)
        lot = draws.several("hint patch", 0, patches).float().to(attention.device)
        place = _rank(lot.masked_fill(~candidate, 2.0), descending=False)
        shown = place < _count(attention, self.show_max * draws.ratio("hint ratio"))
        return hidden & ~shown


@dataclass(frozen=True)
class Random:
    """Hide patches drawn uniformly, without looking."""

    ratio_per: ClassVar[Literal["step", "view"]] = "view"

    def __call__(
        self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws
    ) -> Bool[Tensor, "B N"]:
        lot = draws.several("random patch", 0, attention.shape[-1])
        return _rank(lot, descending=False) < _count(lot, draws.ratio("mask ratio"))


@dataclass(frozen=True)
class Block:
    """Block-wise (BEiT): rectangles until n·r patches are hidden or ten in a row do not fit."""

    attempts: int = 10
    aspect_min: float = 0.3
    ratio_per: ClassVar[Literal["step", "view"]] = "view"

    def __call__(
        self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws
    ) -> Bool[Tensor, "B N"]:
        rows, cols = grid
        wanted = draws.ratio("mask ratio") * (rows * cols)
        area_min = float((min(rows, cols) // 3) ** 2)
        hidden = torch.zeros(len(wanted), rows, cols, dtype=torch.bool)
        failures = torch.zeros_like(draws.images)
        remaining = wanted.clone()
        attempt = 0
        while (open_ := (remaining > 0) & (failures < self.attempts)).any():
            if attempt % 32 == 0:
                area_u, aspect_u, top_u, left_u = (
                    draws.several(f"block {what}", attempt, 32).unbind(1)
                    for what in ("area", "aspect", "top", "left")
                )
            u = attempt % 32
            area = (area_min + (remaining - area_min) * area_u[u]).clamp(min=0)
            aspect = torch.exp(math.log(self.aspect_min) * (1 - 2 * aspect_u[u]))
            height = (area * aspect).sqrt().round().long()
            width = (area / aspect).sqrt().round().long()
            top = (top_u[u] * (rows - height + 1)).long()
            left = (left_u[u] * (cols - width + 1)).long()
            new = _side(rows, top, height)[:, :, None] & _side(cols, left, width)[:, None] & ~hidden
            added = new.sum((1, 2))
            fits = (height < rows) & (width < cols) & (added > 0) & (added <= remaining) & open_
            hidden |= new & fits[:, None, None]
            remaining = remaining - added * fits
            failures = torch.where(fits, 0, failures + 1)
            attempt += 1
        return hidden.flatten(1)


def _side(
    length: int, start: Int[Tensor, "B"], extent: Int[Tensor, "B"]
) -> Bool[Tensor, "B length"]:
    """One side of each rectangle: the indices from start to start + extent."""
    index = torch.arange(length)
    return (index >= start[:, None]) & (index < (start + extent)[:, None])


@dataclass(frozen=True)
class Nothing:
    """Hide nothing: plain DINO."""

    ratio_per: ClassVar[Literal["step", "view"]] = "step"

    def __call__(
        self, attention: Float[Tensor, "B N"], grid: Grid, draws: Draws
    ) -> Bool[Tensor, "B N"]:
        return torch.zeros_like(attention, dtype=torch.bool)


@dataclass(frozen=True)
class Masker:
    """A strategy with how much it hides, how often, and its randomness."""

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
        images, patches = attention.shape
        side = math.isqrt(patches)
        rows, cols = grid or (side, side)
        if rows * cols != patches:
            raise UserError(f"{patches} patches do not fill a grid of {rows} x {cols}; pass grid=")
        if not attention.isfinite().all():
            raise UserError(
                "the attention has NaN or infinite values: the network has diverged; start again "
                "with a lower learning rate or in fp32"
            )
        image = torch.arange(first_image, first_image + images)
        per = "view" if self.per_image else self.strategy.ratio_per
        draws = Draws(self.seed, step, view, image, self.ratio, per)
        mask = self.strategy(attention, (rows, cols), draws).to(attention.device)
        masked_views = draws.per_image("masked view") < self.probability
        return mask & masked_views[:, None].to(attention.device)


def check_ratio(ratio: tuple[float, float]) -> None:
    """Refuse a range of mask ratios that is not 0 <= a <= b <= 1."""
    low, high = ratio
    if not 0 <= low <= high <= 1:
        raise UserError(f"mask ratio [{low}, {high}]: wanted 0 <= a <= b <= 1, e.g. [0.1, 0.5]")


def check_show_max(show_max: float, ratio: tuple[float, float]) -> None:
    """Refuse hints that could be more than what is hidden."""
    if not 0 <= show_max <= ratio[0]:
        raise UserError(
            f"show_max {show_max} must be between 0 and the smallest mask ratio, {ratio[0]}; "
            "lower show_max or raise the ratio"
        )


class MaskingConfig(Config):
    """What is hidden from the student."""

    strategy: Literal["high", "low", "hint", "random", "block", "none"] = setting(
        "high", "which patches are hidden: the most or least attended, ...", paper="high"
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
        None, "block whose attention is read, counted from 1 (null: the last)", paper="12", ge=1
    )

    @field_validator("ratio")
    @classmethod
    def _possible_ratio(cls, ratio: tuple[float, float]) -> tuple[float, float]:
        check_ratio(ratio)
        return ratio

    @model_validator(mode="after")
    def _possible_hints(self) -> "MaskingConfig":
        if self.strategy == "hint":
            check_show_max(self.show_max, self.ratio)
        return self

    def build(self, seed: int) -> Masker:
        """The masker these settings describe."""
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
