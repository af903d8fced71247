from dataclasses import replace

from attmask.evaluation.card import Card
from attmask.evaluation.table import FORMATS, as_csv, as_latex, as_markdown, compare, render

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


def test_checkpoints_are_rows_and_numbers_of_tasks_are_columns() -> None:
    grid = compare(CARDS)
    assert grid.titles == ["checkpoint", "knn top-1", "knn top-5", "quality rank"]
    assert grid.rows == [["high_1", "45.50", "90.12", "0.0123"], ["low|&", "40.00", "80.00", ""]]
    headlines = compare(CARDS, only_headlines=True)
    assert headlines.titles == ["checkpoint", "knn top-1", "quality rank"]


def test_markdown_keeps_its_columns() -> None:
    lines = as_markdown(compare(CARDS)).splitlines()
    assert lines[1] == "| --- | ---: | ---: | ---: |"
    assert lines[3].startswith(r"| low\|& | 40.00 |")


def test_csv_has_one_line_a_checkpoint() -> None:
    assert as_csv(compare(CARDS)).splitlines()[1] == "high_1,45.50,90.12,0.0123"


def test_latex_escapes_what_latex_would_take_for_its_own() -> None:
    text = as_latex(compare(CARDS))
    assert r"high\_1 & 45.50" in text
    assert r"low|\& & 40.00" in text
    assert text.startswith("\\begin{tabular}{lrrr}\n\\toprule")


def test_a_terminal_shows_tasks_with_their_notes_and_counts() -> None:
    text = render(CARDS, width=80)
    assert "knn (version 1; train 9,469, test 3,925)" in text
    assert text.count("note: one class has no image") == 1
    assert all(len(line) <= 80 for line in text.splitlines())
    top = next(line for line in text.splitlines() if line.lstrip().startswith("top-1"))
    assert top.split() == ["top-1", "45.50", "40.00"]


def test_every_ending_has_a_format() -> None:
    assert set(FORMATS) == {".md", ".csv", ".tex"}
