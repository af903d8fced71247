import json
from dataclasses import replace
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.reporting.card import software, write_cards, write_text
from tests.evaluation.reporting.test_table import CARD


def test_cards_are_written_as_json(tmp_path: Path) -> None:
    write_cards([CARD, replace(CARD, task="b")], tmp_path / "new" / "cards.json")
    read = json.loads((tmp_path / "new" / "cards.json").read_text())
    assert [card["task"] for card in read] == ["knn", "b"]
    assert read[0]["numbers"] == {"top-1": 45.5, "top-5": 90.123}


def test_software_names_what_a_number_may_depend_on() -> None:
    assert {"python", "torch", "timm", "attmask"} <= software().keys()


def test_a_place_that_cannot_be_written_is_one_line_and_spoils_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    with pytest.raises(UserError, match=r"cannot write .*; choose another --out"):
        write_text(tmp_path / "file" / "below.json", "new")
    assert (tmp_path / "file").read_text() == "old"


def test_the_headline_is_the_first_number() -> None:
    assert CARD.headline == ("top-1", 45.5)
