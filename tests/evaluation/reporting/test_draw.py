from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attmask.errors import UserError
from attmask.evaluation.catalog import TASKS, find_tasks
from attmask.evaluation.datasets.labelled import Labelled
from attmask.evaluation.protocols.knn import Knn
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.draw import check_drawable, draw_cards, tasks_that_draw
from attmask.evaluation.task import Task
from tests.evaluation.reporting.test_table import CARD


class Drawn(Knn):
    """A protocol that writes the names of the networks instead of a picture."""

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        file.write_text(" ".join(card.checkpoint for card in cards))


def task(name: str) -> Task[Any]:
    return Task(name, Drawn(), Labelled(), 1, "draws")


CARDS = [
    replace(CARD, task=name, checkpoint=checkpoint)
    for name in ("one", "two", "knn")
    for checkpoint in "ab"
]


def test_a_task_draws_its_own_cards_of_all_networks_into_the_file(tmp_path: Path) -> None:
    tasks = [*find_tasks(["knn"]), task("one")]
    assert draw_cards(tasks, CARDS, tmp_path / "x.png") == [tmp_path / "x.png"]
    assert (tmp_path / "x.png").read_text() == "a b"


def test_several_tasks_that_draw_have_a_file_each(tmp_path: Path) -> None:
    draw_cards([task("one"), task("two")], CARDS, tmp_path / "x.png")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x-one.png", "x-two.png"]


def test_a_task_that_failed_everywhere_draws_nothing(tmp_path: Path) -> None:
    assert draw_cards([task("failed")], CARDS, tmp_path / "x.png") == []


def test_a_picture_that_no_task_draws_is_refused_and_those_that_do_are_named() -> None:
    check_drawable(find_tasks(["knn", "occlusion"]), TASKS, Path("a.png"))
    dense = ["segment-linear", "segment-knn", "segment-upernet", "detect-cascade"]
    drawn = ["classify", "occlusion", *dense, "video"]
    assert tasks_that_draw(TASKS) == drawn
    named = f"{', '.join(drawn[:-1])} or video"
    with pytest.raises(UserError, match=rf"^a\.png: knn cannot be plotted; .* the task {named}$"):
        check_drawable(find_tasks(["knn"]), TASKS, Path("a.png"))
