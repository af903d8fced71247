import json
from dataclasses import replace
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.reporting.card import read_cards, write_cards, write_text
from attmask.evaluation.reporting.table import render
from attmask.metric import Metric
from tests.evaluation.reporting.test_table import CARD

OLD = """[
  {"checkpoint": "run", "task": "knn", "version": 1,
   "numbers": {"top-1": 45.5, "top-5": 90.25, "top-1, k=10": 44.0},
   "notes": [], "details": {"by k": {}, "k": {"top-1": 20, "top-5": 20}}, "files": [],
   "protocol": {"kind": "Knn", "ks": [20, 10]}, "dataset": {"kind": "Labelled"}, "data": "images",
   "images": {"train": 48, "val": 20}, "unreadable": {}, "hashes": {"network": "ab"}, "seed": 0,
   "format": "fp32", "device": "cpu", "processes": 1, "software": {"torch": "2.15"},
   "began": "2026-11-15T10:00:00+00:00", "seconds": 1.5},
  {"checkpoint": "run", "task": "fewshot", "version": 1,
   "numbers": {"1 shot": 16.0, "5 shots": 20.0, "5 shots, deviation": 1.5},
   "notes": [], "details": {"k": {"1 shot": 1, "5 shots": 20}}, "files": [],
   "protocol": {"kind": "FewShot"}, "dataset": {"kind": "Labelled"}, "data": "images",
   "images": {"train": 48, "val": 20}, "unreadable": {}, "hashes": {}, "seed": 0,
   "format": "fp32", "device": "cpu", "processes": 1, "software": {},
   "began": "2026-11-15T10:00:00+00:00", "seconds": 1.5, "network": {}}
]"""
"""As version 0.1.0 wrote before there were metrics."""


def test_cards_are_written_as_json(tmp_path: Path) -> None:
    write_cards([CARD, replace(CARD, task="b")], tmp_path / "new" / "cards.json")
    read = json.loads((tmp_path / "new" / "cards.json").read_text())
    assert [card["task"] for card in read] == ["knn", "b"]
    assert read[0]["card"] == 2
    assert read[0]["metrics"][0] == {
        "key": "knn.top1",
        "value": 45.5,
        "unit": "%",
        "higher_is_better": True,
        "spread": None,
        "title": "top-1 accuracy",
    }


def test_cards_that_were_written_are_read_back(tmp_path: Path) -> None:
    shots = Metric("fewshot.top1@5", 20.0, "%", True, spread=1.5, title="5 shots")
    cards = [CARD, replace(CARD, task="fewshot", metrics=[shots], network={"depth": 2})]
    write_cards(cards, tmp_path / "cards.json")
    assert read_cards(tmp_path / "cards.json") == cards


def test_a_card_of_version_1_opens_with_todays_metrics(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(OLD)
    knn, shots = read_cards(tmp_path / "old.json")
    assert (knn.checkpoint, knn.task, knn.version, knn.seed) == ("run", "knn", 1, 0)
    assert knn.metrics == [
        Metric("knn.top1", 45.5, "%", True, title="top-1 accuracy (k = 20)"),
        Metric("knn.top5", 90.25, "%", True, title="top-5 accuracy (k = 20)"),
        Metric("knn.top1@10", 44.0, "%", True, title="top-1 accuracy (k = 10)"),
    ]
    assert shots.metrics == [
        Metric("fewshot.top1@1", 16.0, "%", True, title="top-1 accuracy, 1 shot (k = 1)"),
        Metric("fewshot.top1@5", 20.0, "%", True, 1.5, "top-1 accuracy, 5 shots (k = 20)"),
    ]
    assert "top-1 accuracy, 5 shots (k = 20)" in render([knn, shots], width=100)


@pytest.mark.parametrize(
    "text", ["", "{", "7", "[7]", "[{}]", '{"step": 1}', '[{"metrics": [{}]}]']
)
def test_what_is_no_card_is_one_line_that_says_what_to_do(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match=r"x\.json has no cards of attmask; give a \.json"):
        read_cards(tmp_path / "x.json")


def test_a_card_of_a_later_version_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "new.json").write_text('[{"card": 3}]')
    with pytest.raises(UserError, match=r"cards of version 3, .* up to 2; install a newer attmask"):
        read_cards(tmp_path / "new.json")


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*none\.json"):
        read_cards(tmp_path / "none.json")


def test_a_place_that_cannot_be_written_is_one_line_and_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match=r"cannot write .*; choose another --out"):
        write_text(tmp_path / "file" / "below.json", "new")
    assert (tmp_path / "file").read_text() == "old"


def test_a_card_gives_its_numbers_by_key_the_headline_first() -> None:
    assert list(CARD.values.items()) == [("knn.top1", 45.5), ("knn.top5", 90.123)]
