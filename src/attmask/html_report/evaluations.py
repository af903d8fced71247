"""The results of evaluations as rows of one table, each with its card and its command."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from attmask.errors import UserError
from attmask.evaluation.reporting.card import Card, read_cards
from attmask.metric import Metric, best

log = logging.getLogger(__name__)
_GROUPS = ("protocol", "dataset", "images", "network", "hashes", "software", "details")


def cards_of(run: Path) -> list[Card]:
    """The cards in a run, oldest first; a file that cannot be read is passed over."""
    cards: list[Card] = []
    for file in sorted((run / "evaluations").glob("*.json")):
        try:
            cards += read_cards(file)
        except UserError as fault:
            log.warning("%s; it is left out of the report", fault)
    return sorted(cards, key=lambda card: card.began)


def evaluations(runs: Mapping[str, tuple[Path, Sequence[Card]]]) -> list[dict[str, Any]]:
    """One row for each metric of each card, in the shape of the page; `runs` by their names."""
    rows: list[tuple[str, Path, Card, Metric]] = [
        (name, folder, card, metric)
        for name, (folder, cards) in runs.items()
        for card in cards
        for metric in card.metrics
    ]
    leading = _leading([(card.task, metric) for _, _, card, metric in rows])
    return [
        {
            "run": name,
            "task": card.task,
            "key": metric.key,
            "title": metric.title,
            "value": metric.value,
            "spread": metric.spread,
            "unit": metric.unit,
            "higher": metric.higher_is_better,
            "best": leads,
            "card": _card(card),
            "command": _command(folder, card),
        }
        for (name, folder, card, metric), leads in zip(rows, leading, strict=True)
    ]


def _leading(rows: Sequence[tuple[str, Metric]]) -> list[bool]:
    """Which rows are the best of their task and key."""
    leading = [False] * len(rows)
    groups: dict[tuple[str, str], list[int]] = {}
    for number, (task, metric) in enumerate(rows):
        groups.setdefault((task, metric.key), []).append(number)
    for members in groups.values():
        for number, leads in zip(members, best([rows[i][1] for i in members]), strict=True):
            leading[number] = leads
    return leading


def _card(card: Card) -> dict[str, dict[str, str]]:
    """The card as groups of names and texts."""
    content = card.to_dict()
    groups: dict[str, dict[str, str]] = {
        "result": {
            "checkpoint": card.checkpoint,
            "task": f"{card.task}, version {card.version}",
            "images": card.data,
            "began": card.began,
            "seconds": f"{card.seconds:g}",
            "device": f"{card.device} in {card.format}, seed {card.seed}",
        }
    }
    if card.notes:
        groups["notes"] = {f"{i}": note for i, note in enumerate(card.notes, start=1)}
    for group in _GROUPS:
        if values := {str(name): _text(value) for name, value in content[group].items()}:
            groups[group] = values
    return groups


def _text(value: object) -> str:
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return shown if len(shown) <= 300 else f"{shown[:299]}…"


def _command(folder: Path, card: Card) -> str:
    """A command that repeats the measurement."""
    checkpoint = card.checkpoint
    shown = checkpoint.removeprefix(folder.name)
    named = f"{folder}{shown}" if checkpoint.startswith(folder.name) else checkpoint
    settings = [
        f"{card.task}.{name}={value}"
        for name, value in card.protocol.items()
        if name != "kind" and isinstance(value, int | float | str) and not isinstance(value, bool)
    ]
    words = [
        "attmask evaluate",
        quote(named),
        card.task,
        f"--data {quote(card.data)}",
        *map(quote, settings),
    ]
    return " ".join(words)
