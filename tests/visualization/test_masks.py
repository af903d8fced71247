import pytest
import torch

from attmask.visualization.masks import (
    RATIOS,
    SHOWN_STRATEGIES,
    STRATEGIES,
    StrategyName,
    figure_1_sheets,
    figure_3_sheets,
    mask_of,
    mask_sheets,
)
from attmask.visualization.sheet import Sheet
from tests.visualization.networks import network_of, seen_image


def titles(sheet: Sheet) -> list[str]:
    return [column.title for column in sheet.columns]


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.3, 0.75, 1.0])
@pytest.mark.parametrize("strategy", ["high", "low", "random"])
def test_the_floor_of_the_ratio_is_hidden(strategy: StrategyName, ratio: float) -> None:
    hidden = mask_of(seen_image(), 0, strategy, ratio, 0)
    assert hidden.sum() == int(24 * ratio)


def test_high_and_low_hide_the_two_ends_of_the_attention() -> None:
    seen = seen_image()
    attention = seen.on_grid(seen.attention)
    high, low = (mask_of(seen, 0, name, 0.25, 0) for name in ("high", "low"))
    assert attention[high].min() > attention[~high].max()
    assert attention[low].max() < attention[~low].min()


def test_masks_depend_on_the_seed_and_the_image_only_where_they_are_random() -> None:
    seen = seen_image(grid=(14, 14))
    for strategy in STRATEGIES:
        masks = [
            mask_of(seen, number, strategy, 0.5, seed) for number, seed in ((0, 0), (1, 0), (0, 1))
        ]
        same = all(torch.equal(masks[0], other) for other in masks[1:])
        assert same == (strategy in ("high", "low"))


def test_the_figures_have_the_columns_of_the_paper() -> None:
    networks = [network_of(seen_image())]
    (first,), (third,) = (make(networks, 8, seed=0) for make in (figure_1_sheets, figure_3_sheets))
    assert titles(first) == [
        "image", "Random, 30 %", "Random, 75 %", "Block, 30 %", "attention", "High, 30 %",
        "Low, 30 %",
    ]  # fmt: skip
    assert titles(third) == ["image", "attention", "High, 30 %", "Hint, 30 %"]


def test_the_illustration_has_a_row_a_strategy_and_a_column_a_ratio() -> None:
    networks = [network_of(seen_image(0), seen_image(1))]
    (sheet,) = mask_sheets(networks, 8, strategies=SHOWN_STRATEGIES, ratios=RATIOS, seed=0)
    assert titles(sheet) == ["image", "10 %", "30 %", "50 %"]
    assert [row.title for row in sheet.rows] == 2 * ["Block", "Random", "High", "Hint"]
    high = [cell.caption for cell in sheet.rows[2].cells if cell]
    assert high == ["8.3 % hidden", "29.2 % hidden", "50.0 % hidden"]


def test_other_strategies_and_ratios_are_drawn_on_request() -> None:
    networks = [network_of(seen_image(), name=name) for name in ("a", "b")]
    (sheet,) = mask_sheets(networks, 8, strategies=["low"], ratios=[0.75], seed=0)
    assert titles(sheet) == ["image", "75 %"]
    assert [row.title for row in sheet.rows] == ["Low", "Low"]
