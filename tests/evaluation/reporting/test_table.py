from dataclasses import replace

import pytest

from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.table import (
    FORMATS,
    as_csv,
    as_latex,
    as_markdown,
    compare,
    render,
)
from attmask.metric import Metric


def top(classes: int, value: float, spread: float | None = None) -> Metric:
    return Metric(f"knn.top{classes}", value, "%", True, spread, f"top-{classes} accuracy")


RANK = Metric("label_free.rank", 0.01234, "", None, title="effective rank")
CARD = Card(
    checkpoint="high_1",
    task="knn",
    version=1,
    metrics=[top(1, 45.5), top(5, 90.123)],
    notes=["one class has no image"],
    details={},
    files=[],
    protocol={},
    dataset={},
    data="images",
    images={"train": 9469, "test": 3925},
    unreadable={},
    hashes={},
    seed=0,
    format="fp32",
    device="cpu",
    processes=1,
    software={},
    began="",
    seconds=1.0,
)
CARDS = [
    CARD,
    replace(CARD, task="quality", metrics=[RANK], notes=[]),
    replace(CARD, checkpoint="low|&", metrics=[top(1, 40.0), top(5, 80.0)]),
]


def shown(cards: list[Card], start: str, width: int = 80) -> str:
    """The row of a terminal's table that begins so."""
    lines = render(cards, width=width).splitlines()
    return next(line for line in lines if line.lstrip().startswith(start))


def test_metrics_of_tasks_are_rows_and_checkpoints_are_columns() -> None:
    table = compare(CARDS)
    assert table.checkpoints == ["high_1", "low|&"]
    assert [row.names for row in table.rows] == [
        ["knn", "top-1 accuracy", "knn.top1", "%"],
        ["knn", "top-5 accuracy", "knn.top5", "%"],
        ["quality", "effective rank", "label_free.rank", ""],
    ]
    assert [row.metrics for row in table.rows] == [
        [top(1, 45.5), top(1, 40.0)],
        [top(5, 90.123), top(5, 80.0)],
        [RANK, None],
    ]


def test_markdown_keeps_its_columns_and_shows_title_key_and_unit() -> None:
    lines = as_markdown(compare(CARDS)).splitlines()
    assert lines[0] == r"| task | metric | key | unit | high_1 | low\|& |"
    assert lines[1] == "| --- | --- | --- | --- | ---: | ---: |"
    assert lines[2] == "| knn | top-1 accuracy | knn.top1 | % | 45.50 | 40.00 |"
    assert lines[4] == "| quality | effective rank | label_free.rank |  | 0.0123 |  |"


def test_csv_has_one_line_a_metric() -> None:
    lines = as_csv(compare(CARDS)).splitlines()
    assert lines[0] == "task,metric,key,unit,high_1,low|&"
    assert lines[1] == "knn,top-1 accuracy,knn.top1,%,45.50,40.00"


def test_a_spread_stands_beside_its_number_and_in_csv_in_a_column_of_its_own() -> None:
    cards = [replace(CARD, metrics=[top(1, 45.5, 1.234), top(5, 90.0)]), CARDS[2]]
    assert "| 45.50 ± 1.23 | 40.00 |" in as_markdown(compare(cards))
    assert r"45.50 $\pm$ 1.23 & 40.00 \\" in as_latex(compare(cards))
    assert as_csv(compare(cards)).splitlines() == [
        "task,metric,key,unit,high_1,low|&,high_1 spread",
        "knn,top-1 accuracy,knn.top1,%,45.50,40.00,1.23",
        "knn,top-5 accuracy,knn.top5,%,90.00,80.00,",
    ]
    assert "45.50 ± 1.23" in shown(cards, "top-1")


def test_latex_escapes_what_latex_would_take_for_its_own() -> None:
    text = as_latex(compare(CARDS))
    assert r"task & metric & key & unit & high\_1 & low|\& \\" in text
    assert r"knn & top-1 accuracy & knn.top1 & \% & 45.50 & 40.00 \\" in text
    assert text.startswith("\\begin{tabular}{llllrr}\n\\toprule")


def test_a_terminal_shows_tasks_with_their_notes_and_counts() -> None:
    text = render(CARDS, width=80)
    assert "knn (version 1; train 9,469, test 3,925)" in text
    assert text.count("note: one class has no image") == 1
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_terminal_shows_titles_and_units() -> None:
    assert shown([CARD], "top-1").split() == ["top-1", "accuracy", "%", "45.50"]
    assert shown(CARDS, "effective rank").split() == ["effective", "rank", "0.0123"]


def test_the_best_of_a_row_is_marked_by_the_direction_of_its_metric() -> None:
    def card(name: str, **values: float) -> Card:
        directions = {"higher": True, "lower": False, "neither": None}
        metrics = [Metric(f"a.{k}", v, "", directions[k]) for k, v in values.items()]
        return replace(CARD, checkpoint=name, metrics=metrics)

    cards = [card("x", higher=2, lower=2, neither=2), card("y", higher=1, lower=1, neither=1)]
    assert shown(cards, "a.higher").split() == ["a.higher", "2.00*", "1.00"]
    assert shown(cards, "a.lower").split() == ["a.lower", "2.00", "1.00*"]
    assert shown(cards, "a.neither").split() == ["a.neither", "2.00", "1.00"]
    assert render(cards, width=80).endswith("* best of its row\n")
    assert "*" not in render(cards[:1], width=80), "one checkpoint is not the best of anything"


def test_numbers_that_look_the_same_are_marked_alike_and_where_all_do_none_is() -> None:
    cards = [
        replace(CARD, checkpoint=name, metrics=[top(1, first), top(5, second)])
        for name, first, second in (("x", 20.001, 9.0), ("y", 20.002, 9.001), ("z", 20.003, 8.0))
    ]
    assert shown(cards, "top-1").split()[-3:] == ["20.00", "20.00", "20.00"]
    assert shown(cards, "top-5").split()[-3:] == ["9.00*", "9.00*", "8.00"]


def test_a_number_of_images_is_whole() -> None:
    images = Metric("objects.images", 40, "images", None, title="images with an object")
    assert shown([replace(CARD, metrics=[images])], "images").split()[-2:] == ["images", "40"]


def test_titles_that_differ_between_checkpoints_are_all_shown() -> None:
    twenty, five = (Metric("knn.top1", 50, "%", True, title=f"top-1 (k = {k})") for k in (20, 5))
    cards = [replace(CARD, metrics=[twenty]), replace(CARD, checkpoint="b", metrics=[five])]
    assert compare(cards).rows[0].title == "top-1 (k = 20) / top-1 (k = 5)"


def test_every_ending_has_a_format() -> None:
    assert set(FORMATS) == {".md", ".csv", ".tex"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_shown_as_it_is(value: float) -> None:
    card = replace(CARD, metrics=[Metric("x.y", value, "%", True)])
    assert str(value) in as_markdown(compare([card]))
    assert str(value) in render([card], width=80)
