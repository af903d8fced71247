"""The images of a run, whatever it was trained for."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from attmask.curves.run_curves import read_curves
from attmask.errors import UserError
from attmask.html_report.run_images import data_of, images_of
from attmask.trainings import tuning_recipe
from tests.dense_runs import write_boxed, write_masked


def test_the_record_of_a_run_says_where_its_images_are_unless_they_have_moved(
    run: Path, scenes: Path, tmp_path: Path
) -> None:
    curves = read_curves(run)
    assert data_of(curves, None) == scenes
    assert data_of(curves, tmp_path) == tmp_path
    assert {name: len(each) for name, each in images_of(curves, None).splits.items()} == {
        "train": 48,
        "val": 20,
    }


@pytest.mark.parametrize(
    ("recipe", "write"), [("segment-own", write_masked), ("detect-own", write_boxed)]
)
def test_of_annotated_images_only_the_images_are_shown(
    recipe: str, write: Callable[[Path], Path], run: Path, tmp_path: Path
) -> None:
    tuned = replace(read_curves(run), config=tuning_recipe(recipe))
    images = images_of(tuned, write(tmp_path))
    assert {name: len(each) for name, each in images.splits.items()} == {"train": 8, "val": 2}


def test_a_run_that_does_not_say_so_is_refused(run: Path, tmp_path: Path) -> None:
    lost = replace(read_curves(run), folder=tmp_path)
    with pytest.raises(UserError, match="--data"):
        images_of(lost, None)
