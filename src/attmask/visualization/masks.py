"""What the masking strategies hide, as in the figures of the paper."""

from collections.abc import Sequence
from typing import Literal, get_args

from jaxtyping import Bool
from torch import Tensor

from attmask.evaluation.metrics.objects import strategy_masks
from attmask.visualization.cells import map_cell, masked_cell
from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, Column, Row, Sheet, pages
from attmask.visualization.side_by_side import headed, rows_by_image

StrategyName = Literal["block", "random", "high", "hint", "low"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)

RATIOS = (0.1, 0.3, 0.5)
SHOWN_STRATEGIES: tuple[StrategyName, ...] = ("block", "random", "high", "hint")
"""Those of the paper's illustration, in its order."""
_Shown = tuple[StrategyName, float] | None
"""A strategy at a ratio, or None for the attention."""
_FIGURE_1: tuple[_Shown, ...] = (
    ("random", 0.3),
    ("random", 0.75),
    ("block", 0.3),
    None,
    ("high", 0.3),
    ("low", 0.3),
)
_FIGURE_3: tuple[_Shown, ...] = (None, ("high", 0.3), ("hint", 0.3))


def mask_of(
    seen: Seen, number: int, strategy: StrategyName, ratio: float, seed: int
) -> Bool[Tensor, "rows cols"]:
    """The patches that a strategy hides of image `number` of those shown."""
    masks = strategy_masks(
        seen.attention[None], seen.grid, ratio=ratio, seed=seed, first_image=number
    )
    return masks[strategy][0].view(*seen.grid)


def mask_sheets(
    networks: Sequence[Network],
    max_rows: int,
    *,
    strategies: Sequence[StrategyName],
    ratios: Sequence[float],
    seed: int,
) -> list[Sheet]:
    """For each image and network, a row for each strategy and a column for each ratio."""
    groups = []
    for number, together in enumerate(zip(*(n.seen for n in networks), strict=True)):
        for network, seen in zip(networks, together, strict=True):
            attention = map_cell(seen.photo, seen.on_grid(seen.attention))
            name = f"attention, {network.name}" if len(networks) > 1 else "attention"
            beside = [Cell(seen.photo, seen.name), Cell(attention, name)]
            groups.append(
                [
                    Row(
                        [
                            beside[place] if place < len(beside) else None,
                            *(_masked(seen, number, strategy, r, seed) for r in ratios),
                        ],
                        strategy.capitalize(),
                    )
                    for place, strategy in enumerate(strategies)
                ]
            )
    columns = ["image", *(f"{100 * ratio:g} %" for ratio in ratios)]
    return _sheets("Masks and the share of patches they hide", columns, networks, groups, max_rows)


def figure_1_sheets(networks: Sequence[Network], max_rows: int, *, seed: int) -> list[Sheet]:
    """Figure 1 of the paper: random, block-wise and attention-guided masking."""
    return _figure("Masking strategies", _FIGURE_1, networks, max_rows, seed)


def figure_3_sheets(networks: Sequence[Network], max_rows: int, *, seed: int) -> list[Sheet]:
    """Figure 3 of the paper: High and Hint."""
    return _figure("AttMask-High and AttMask-Hint", _FIGURE_3, networks, max_rows, seed)


def _figure(
    title: str, shown: Sequence[_Shown], networks: Sequence[Network], max_rows: int, seed: int
) -> list[Sheet]:
    def cells(_: Network, seen: Seen, number: int) -> list[Cell]:
        return [Cell(seen.photo), *(_one(seen, number, what, seed) for what in shown)]

    columns = ["image", *("attention" if what is None else _named(*what) for what in shown)]
    return _sheets(title, columns, networks, rows_by_image(networks, cells), max_rows)


def _sheets(
    title: str,
    columns: Sequence[str],
    networks: Sequence[Network],
    groups: Sequence[Sequence[Row]],
    max_rows: int,
) -> list[Sheet]:
    sheet = Sheet(headed(title, networks), [Column(one) for one in columns], ())
    return pages(sheet, groups, max_rows)


def _named(strategy: StrategyName, ratio: float) -> str:
    return f"{strategy.capitalize()}, {100 * ratio:g} %"


def _one(seen: Seen, number: int, what: _Shown, seed: int) -> Cell:
    if what is None:
        return Cell(map_cell(seen.photo, seen.on_grid(seen.attention)))
    return _masked(seen, number, *what, seed)


def _masked(seen: Seen, number: int, strategy: StrategyName, ratio: float, seed: int) -> Cell:
    hidden = mask_of(seen, number, strategy, ratio, seed)
    share = 100 * float(hidden.double().mean())
    return Cell(masked_cell(seen.photo, hidden), f"{share:.1f} % hidden")
