"""The tensors of a network in timm's names, and what their origin says of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attmask.models.positions import Resize
from attmask.models.weights_file import listed

EPS = 1e-6
"""Of the layer norms of timm's ViTs, DINO and its descendants."""
ROTARY_EPS = 1e-5
"""Of those of DINOv3."""


@dataclass(frozen=True)
class Weights:
    """The tensors of a network in timm's names; what is None is told by the tensors."""

    layout: str
    """Whose names the tensors had."""
    tensors: Mapping[str, Tensor]
    mask_token: Tensor | None = None
    left_out: tuple[str, ...] = ()
    """Names of tensors that do not belong to the backbone: heads, decoders, other networks."""
    beside: tuple[str, ...] = ()
    """Entries of the file that are no part of this network: an optimizer, a student."""
    heads: int | None = None
    positions: Resize | None = None
    eps: float = EPS
    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    rotary: Mapping[str, Any] = field(default_factory=dict)
    """Settings of rotary positions, where a config states them."""


@dataclass(frozen=True)
class Detection:
    """What an importer found: the layout, and which tensors were used, left out and missing."""

    layout: str
    used: int
    left_out: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()

    @property
    def counts(self) -> str:
        """How many tensors were used, left out and missing, with the first names."""
        parts = [f"{self.used} used"]
        for names, what in ((self.left_out, "left out"), (self.missing, "missing")):
            parts.append(f"{len(names)} {what} ({listed(names, 3)})" if names else f"none {what}")
        return ", ".join(parts)

    def describe(self) -> dict[str, str]:
        """The layout and the tensors, for a card."""
        beside = {"beside": listed(self.beside, 6)} if self.beside else {}
        return {"layout": self.layout, "tensors": self.counts, **beside}
