"""The results of evaluations as rows of one table, each with its card and its command."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from attmask.errors import UserError
from attmask.evaluation.catalog import TASKS
from attmask.evaluation.reporting.card import Card, read_cards
from attmask.metric import Metric, best
from attmask.settings import Config

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


def evaluations(runs: Mapping[str, tuple[Path, Sequence[Card]]]) -> dict[str, Any]:
    """A row for each metric of each card, in the shape of the page; `runs` by their names."""
    measured = [(n, folder, card) for n, (folder, cards) in runs.items() for card in cards]
    rows = [
        (number, name, folder, card, metric)
        for number, (name, folder, card) in enumerate(measured)
        for metric in card.metrics
    ]
    leading = _leading([(card, metric) for *_, card, metric in rows])
    return {
        "cards": [{"groups": _card(c), "command": _command(f, c)} for _, f, c in measured],
        "rows": [
            {
                "run": _network(card, folder, name),
                "task": card.task,
                "images": card.data,
                "key": metric.key,
                "title": metric.title,
                "value": metric.value,
                "spread": metric.spread,
                "unit": metric.unit,
                "higher": metric.higher_is_better,
                "best": leads,
                "card": number,
            }
            for (number, name, folder, card, metric), leads in zip(rows, leading, strict=True)
        ],
    }


def _leading(rows: Sequence[tuple[Card, Metric]]) -> list[bool]:
    """Which rows are the best of their task, images and key."""
    leading = [False] * len(rows)
    groups: dict[tuple[str, str, str], list[int]] = {}
    for number, (card, metric) in enumerate(rows):
        groups.setdefault((card.task, card.data, metric.key), []).append(number)
    for members in groups.values():
        for number, leads in zip(members, best([rows[i][1] for i in members]), strict=True):
            leading[number] = leads
    return leading


def _network(card: Card, folder: Path, name: str) -> str:
    """The network of a card under the name of its run: `RUN`, `RUN@untrained`."""
    own = card.checkpoint
    return f"{name}{own.removeprefix(folder.name)}" if own.startswith(folder.name) else own


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
    """A command that repeats the measurement, with the settings that are not the task's own."""
    words = [_network(card, folder, str(folder)), card.task, "--data", card.data, *_changes(card)]
    words += [] if card.format == "fp32" else ["--precision", card.format]
    words += ["--seed", str(card.seed)] if card.seed else []
    return " ".join(["attmask evaluate", *map(quote, words)])


def _changes(card: Card) -> Iterator[str]:
    """The settings of a card that differ from those of its task; none for a task of others."""
    task = next((task for task in TASKS if task.name == card.task), None)
    if task is None:
        return
    for part, stated in ((task.protocol, card.protocol), (task.dataset, card.dataset)):
        assert isinstance(part, Config)
        usual = dict(_flat(part.model_dump(mode="json")))
        for key, value in _flat(stated):
            if key in usual and usual[key] != value:
                yield f"{card.task}.{key}={json.dumps(value)}"


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Settings under their dotted names."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
