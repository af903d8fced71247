"""The table of results has one row per metric, with its card and a command."""

import shlex
from dataclasses import replace
from pathlib import Path

from attmask.api import evaluate
from attmask.cli import main
from attmask.evaluation.reporting.card import read_cards, write_cards
from attmask.html_report.evaluations import cards_of, evaluations
from attmask.metric import Metric
from tests.evaluation.reporting.test_table import CARD


def card(name: str, top1: float) -> list[Metric]:
    return [
        Metric("knn.top1", top1, "%", True, title="top-1"),
        Metric("knn.images", 20, "images", None),
    ]


def test_each_metric_is_a_row_and_the_best_of_a_task_is_marked(tmp_path: Path) -> None:
    one = replace(CARD, checkpoint="a", task="knn", metrics=card("a", 40.0))
    two = replace(CARD, checkpoint="b", task="knn", metrics=card("b", 45.0))
    rows = evaluations({"a": (tmp_path / "a", [one]), "b": (tmp_path / "b", [two])})["rows"]
    assert [(row["run"], row["key"], row["value"], row["best"]) for row in rows] == [
        ("a", "knn.top1", 40.0, False),
        ("a", "knn.images", 20.0, False),
        ("b", "knn.top1", 45.0, True),
        ("b", "knn.images", 20.0, False),
    ]


def test_results_on_other_images_are_not_compared(tmp_path: Path) -> None:
    easy = replace(CARD, checkpoint="a", task="knn", data="pets", metrics=card("a", 80.0))
    hard = replace(CARD, checkpoint="a", task="knn", data="birds", metrics=card("a", 30.0))
    made = evaluations({"a": (tmp_path / "a", [easy, hard])})
    shown = [(r["images"], r["value"], r["best"], r["card"]) for r in made["rows"][::2]]
    assert shown == [("pets", 80.0, False, 0), ("birds", 30.0, False, 1)]


def test_the_command_names_the_network_in_its_folder_and_quotes_paths(tmp_path: Path) -> None:
    folder = tmp_path / "my run"
    untrained = replace(CARD, checkpoint="my run@untrained", task="knn", data="some images")
    made = evaluations({"mine": (folder, [untrained])})
    assert made["rows"][0]["run"] == "mine@untrained"
    assert made["cards"][0]["command"].startswith(
        f"attmask evaluate '{folder}@untrained' knn --data 'some images'"
    )


def test_the_command_of_a_number_measures_it_again(run: Path, scenes: Path) -> None:
    settings = ["knn.ks=[3]", "knn.readout.token=gap", "knn.per_class=2"]
    first = evaluate(run, "knn", data=scenes, overrides=settings)[0]
    (shown,) = evaluations({run.name: (run, [first])})["cards"]
    words = shlex.split(shown["command"])[1:]
    assert [word for word in words if "=" in word] == [
        "knn.ks=[3]",
        'knn.readout.token="gap"',
        "knn.per_class=2",
    ]
    assert main([*words, "--out", str(run / "again.json")]) == 0
    (again,) = read_cards(run / "again.json")
    assert again.values == first.values


def test_cards_are_read_from_the_run_and_a_broken_file_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "evaluations").mkdir()
    late = replace(CARD, began="2026-11-18T10:00:00")
    early = replace(CARD, began="2026-11-17T10:00:00")
    write_cards([late], tmp_path / "evaluations" / "a.json")
    write_cards([early], tmp_path / "evaluations" / "b.json")
    (tmp_path / "evaluations" / "c.json").write_text("no card")
    assert [card.began for card in cards_of(tmp_path)] == [early.began, late.began]


def test_a_card_is_texts_alone_and_long_ones_are_cut(tmp_path: Path) -> None:
    long = replace(CARD, details={"names": "x" * 1000}, notes=["a note"])
    shown = evaluations({"a": (tmp_path, [long])})["cards"][0]["groups"]
    assert shown["notes"] == {"1": "a note"}
    assert len(shown["details"]["names"]) == 300
    assert all(isinstance(text, str) for group in shown.values() for text in group.values())
