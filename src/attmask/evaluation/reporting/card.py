"""The card of a result: its metrics and everything needed to reproduce them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.reporting.old_card import metrics_of_numbers
from attmask.metric import Metric, check_unique, values_by_key

CARD_VERSION = 2
"""The version of the file format; 2 has metrics with units and directions."""


@dataclass(frozen=True)
class Card:
    """The metrics of a task on a checkpoint, and everything needed to reproduce them."""

    checkpoint: str
    task: str
    version: int
    metrics: Sequence[Metric]
    """The most important first."""
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
    """The network and its input: training step and epoch, image size, patch size, heads,
    positions, mean and std; empty in old cards."""

    def __post_init__(self) -> None:
        check_unique(self.metrics)

    @property
    def values(self) -> dict[str, float]:
        """The values by the keys of the metrics."""
        return values_by_key(self.metrics)

    def to_dict(self) -> dict[str, Any]:
        """The card as JSON."""
        return {"card": CARD_VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> "Card":
        """A card from JSON of any version; KeyError or TypeError if it is not a card."""
        known = {name: document[name] for name in _names(cls) if name in document}
        if "numbers" in document:
            known["metrics"] = metrics_of_numbers(document)
        else:
            known["metrics"] = [Metric(**metric) for metric in document["metrics"]]
        return cls(**known)


def _names(kind: type[Card]) -> list[str]:
    return [part.name for part in fields(kind)]


def write_cards(cards: Sequence[Card], file: Path) -> None:
    """Write all cards as one JSON document."""
    document = json.dumps([card.to_dict() for card in cards], indent=2) + "\n"
    write_text(file, document)


def read_cards(file: Path) -> list[Card]:
    """Read the cards of a JSON document written by this or an earlier version."""
    try:
        documents = json.loads(file.read_text(encoding="utf-8"))
        newest = max((document.get("card", 1) for document in documents), default=1)
        if newest <= CARD_VERSION:
            return [Card.from_dict(document) for document in documents]
    except OSError as fault:
        raise UserError(f"cannot read {file}: {fault.strerror or fault}; check the path") from fault
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise UserError(
            f"{file} has no cards of attmask; give a .json file written by attmask evaluate, or "
            "evaluate again"
        ) from fault
    raise UserError(
        f"{file} has cards of version {newest}, but this attmask reads versions up to "
        f"{CARD_VERSION}; install a newer attmask"
    )


def write_text(file: Path, text: str) -> None:
    """Write a file atomically."""
    try:
        atomic.write(file, text)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot write {file}: {why}; choose another --out") from fault
