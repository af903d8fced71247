"""What the masking strategies hide, as in the figures of the paper."""

from collections.abc import Sequence

from jaxtyping import Bool
from torch import Tensor

from attmask.evaluation.metrics.objects import strategy_masks
from attmask.visualization.cells import map_cell, masked_cell
from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, Column, Row, Sheet, pages, titles

RATIOS = (0.1, 0.3, 0.5)
STRATEGIES = ("block", "random", "high", "hint")
_FIGURE_1 = ("random", 0.3), ("random", 0.75), ("block", 0.3), None, ("high", 0.3), ("low", 0.3)
_FIGURE_3 = None, ("high", 0.3), ("hint", 0.3)
_Shown = tuple[str, float] | None
"""A strategy at a ratio, or None for the attention."""


def mask_of(
    seen: Seen, number: int, strategy: str, ratio: float, seed: int
) -> Bool[Tensor, "rows cols"]:
    """The patches that a strategy hides of image `number` of those shown."""
    masks = strategy_masks(
        seen.attention[None], seen.grid, ratio=ratio, seed=seed, first_image=number
    )
    return masks[strategy][0].view(*seen.grid)


def mask_sheets(
    networks: Sequence[Network], max_rows: int, *, ratios: Sequence[float], seed: int
) -> list[Sheet]:
    """For each image and network, a row for each strategy and a column for each ratio."""
    groups = []
    for number, together in enumerate(zip(*(n.seen for n in networks), strict=True)):
        group: list[Row] = []
        for network, seen in zip(networks, together, strict=True):
            for strategy in STRATEGIES:
                cells = [_masked(seen, number, strategy, ratio, seed) for ratio in ratios]
                first = [*_input(seen, network if len(networks) > 1 else None)]
                beside = first if strategy == STRATEGIES[0] else [None, None]
                group.append(Row([*beside, *cells], strategy.capitalize()))
        groups.append(group)
    columns = ["image", "attention", *(f"{100 * ratio:g} %" for ratio in ratios)]
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
    groups = [
        [
            Row(
                [Cell(seen.photo), *(_one(seen, number, what, seed) for what in shown)],
                *titles(seen.name, network.name, len(networks)),
            )
            for network, seen in zip(networks, together, strict=True)
        ]
        for number, together in enumerate(zip(*(n.seen for n in networks), strict=True))
    ]
    columns = ["image", *("attention" if what is None else _named(*what) for what in shown)]
    return _sheets(title, columns, networks, groups, max_rows)


def _sheets(
    title: str,
    columns: Sequence[str],
    networks: Sequence[Network],
    groups: Sequence[Sequence[Row]],
    max_rows: int,
) -> list[Sheet]:
    if len(networks) == 1:
        title = f"{title}: {networks[0].name}"
    return pages(Sheet(title, [Column(one) for one in columns], ()), groups, max_rows)


def _named(strategy: str, ratio: float) -> str:
    return f"{strategy.capitalize()}, {100 * ratio:g} %"


def _one(seen: Seen, number: int, what: _Shown, seed: int) -> Cell:
    if what is None:
        return Cell(map_cell(seen.photo, seen.on_grid(seen.attention)))
    return _masked(seen, number, *what, seed)


def _masked(seen: Seen, number: int, strategy: str, ratio: float, seed: int) -> Cell:
    hidden = mask_of(seen, number, strategy, ratio, seed)
    share = 100 * float(hidden.double().mean())
    return Cell(masked_cell(seen.photo, hidden), f"{share:.1f} % hidden")


def _input(seen: Seen, network: Network | None) -> tuple[Cell, Cell]:
    attention = map_cell(seen.photo, seen.on_grid(seen.attention))
    return Cell(seen.photo, seen.name), Cell(attention, network.name if network else "")
