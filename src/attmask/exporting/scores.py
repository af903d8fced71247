"""The scores of an exported network: the cards of its run that were measured on it."""

from dataclasses import replace
from pathlib import Path

from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card
from attmask.html_report.evaluations import cards_of


def own_cards(model: FrozenModel) -> tuple[list[Card], int]:
    """The cards of this very network, and how many cards of its run are of other weights.

    Paths are cut to their last part: an export is made to be published.
    """
    if model.folder is None:
        return [], 0
    found = cards_of(model.folder)
    own = [card for card in found if card.hashes.get("network") == model.digest]
    return [_without_paths(card, model) for card in own], len(found) - len(own)


def _without_paths(card: Card, model: FrozenModel) -> Card:
    return replace(
        card,
        checkpoint=Path(card.checkpoint).name or model.name,
        data=Path(card.data).name,
        files=[Path(file).name for file in card.files],
    )


def score_rows(cards: list[Card]) -> list[str]:
    """The rows of a table in Markdown: task, metric, value, images, time."""
    return [
        f"| {card.task} (version {card.version}) | {metric.title} | {_value(metric.value)}"
        f"{_spread(metric.spread)}{' ' * bool(metric.unit)}{metric.unit} | {cell(card.data)} | "
        f"{card.began[:10]} |"
        for card in cards
        for metric in card.metrics
    ]


def cell(text: str) -> str:
    """A text that cannot end a cell of a table, or begin markup."""
    shown = " ".join(text.split()).replace("\\", "\\\\")
    return shown.replace("|", "\\|").replace("<", "&lt;").replace("`", "\\`")


def _value(value: float) -> str:
    return f"{value:.4g}"


def _spread(spread: float | None) -> str:
    return "" if spread is None else f" ± {spread:.2g}"
