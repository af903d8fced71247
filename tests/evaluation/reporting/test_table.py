from dataclasses import replace

from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.table import (
    FORMATS,
    as_csv,
    as_latex,
    as_markdown,
    compare,
    render,
)

CARD = Card(
    checkpoint="high_1",
    task="knn",
    version=1,
    numbers={"top-1": 45.5, "top-5": 90.123},
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
    replace(CARD, task="quality", numbers={"rank": 0.01234}, notes=[]),
    replace(CARD, checkpoint="low|&", numbers={"top-1": 40.0, "top-5": 80.0}),
]


def test_numbers_of_tasks_are_rows_and_checkpoints_are_columns() -> None:
    grid = compare(CARDS)
    assert grid.titles == ["task", "number", "high_1", "low|&"]
    assert grid.rows == [
        ["knn", "top-1", "45.50", "40.00"],
        ["knn", "top-5", "90.12", "80.00"],
        ["quality", "rank", "0.0123", ""],
    ]


def test_markdown_keeps_its_columns() -> None:
    lines = as_markdown(compare(CARDS)).splitlines()
    assert lines[0] == r"| task | number | high_1 | low\|& |"
    assert lines[1] == "| --- | --- | ---: | ---: |"
    assert lines[2] == "| knn | top-1 | 45.50 | 40.00 |"


def test_csv_has_one_line_a_number() -> None:
    assert as_csv(compare(CARDS)).splitlines()[1] == "knn,top-1,45.50,40.00"


def test_latex_escapes_what_latex_would_take_for_its_own() -> None:
    text = as_latex(compare(CARDS))
    assert r"task & number & high\_1 & low|\& \\" in text
    assert text.startswith("\\begin{tabular}{llrr}\n\\toprule")


def test_a_terminal_shows_tasks_with_their_notes_and_counts() -> None:
    text = render(CARDS, width=80)
    assert "knn (version 1; train 9,469, test 3,925)" in text
    assert text.count("note: one class has no image") == 1
    assert all(len(line) <= 80 for line in text.splitlines())
    top = next(line for line in text.splitlines() if line.lstrip().startswith("top-1"))
    assert top.split() == ["top-1", "45.50", "40.00"]


def test_every_ending_has_a_format() -> None:
    assert set(FORMATS) == {".md", ".csv", ".tex"}
