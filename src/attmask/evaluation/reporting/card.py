"""The protocol card: one number is worth nothing without how it came about."""

import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from attmask import atomic
from attmask.errors import UserError

_SOFTWARE = ("attmask", "torch", "torchvision", "timm", "numpy", "pillow", "scikit-learn")


@dataclass(frozen=True)
class Card:
    """A measurement, and all that is needed to make it again."""

    checkpoint: str
    task: str
    version: int
    numbers: Mapping[str, float]
    notes: Sequence[str]
    details: Mapping[str, Any]
    files: Sequence[str]
    protocol: Mapping[str, Any]
    dataset: Mapping[str, Any]
    data: str
    images: Mapping[str, int]
    unreadable: Mapping[str, int]
    hashes: Mapping[str, str]
    seed: int
    format: str
    device: str
    processes: int
    software: Mapping[str, str]
    began: str
    seconds: float
    network: Mapping[str, Any] = field(default_factory=dict)
    """What was measured: training step and epoch, image size, patch, heads, positions, mean and
    std; empty in cards from before it was written."""

    @property
    def headline(self) -> tuple[str, float]:
        """The number to compare by."""
        return next(iter(self.numbers.items()))

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


def software() -> dict[str, str]:
    """The versions of what a number may depend on."""
    found = {"python": platform.python_version()}
    for name in _SOFTWARE:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def write_cards(cards: Sequence[Card], file: Path) -> None:
    """All cards as one JSON document."""
    document = json.dumps([card.to_dict() for card in cards], indent=2) + "\n"
    write_text(file, document)


def write_text(file: Path, text: str) -> None:
    """Write a file whole or not at all."""
    try:
        atomic.write(file, text)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot write {file}: {why}; choose another --out") from fault
