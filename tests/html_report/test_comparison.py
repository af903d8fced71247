"""Several runs side by side."""

from dataclasses import replace
from pathlib import Path

import pytest

from attmask.curves.run_curves import read_curves
from attmask.errors import UserError
from attmask.html_report.comparison import comparison_of
from attmask.run_config import override


def test_a_single_run_is_not_compared(run: Path) -> None:
    assert comparison_of([read_curves(run)], None) is None


def test_settings_that_differ_come_with_the_value_of_each_run(run: Path) -> None:
    one = read_curves(run)
    config = override(one.config, ["masking.strategy=random", "seed=3", "train.workers=2"])
    two = replace(one, name="random", config=config)
    made = comparison_of([one, two], "random")
    assert made is not None
    assert {each["key"]: each["values"] for each in made["differences"]} == {
        "seed": ["0", "3"],
        "masking.strategy": ["high", "random"],
    }
    assert (made["metric"], made["baseline"]) == ("knn.top1", "random")
    assert made["sentences"][0].startswith("high ")
    last = one.curves["knn.top1"].values[-1]
    assert made["table"][0]["values"]["knn.top1"] == last


def test_runs_without_a_common_accuracy_are_told_so_and_a_wrong_baseline_is_refused(
    run: Path,
) -> None:
    one = read_curves(run)
    curves = {key: curve for key, curve in one.curves.items() if key.startswith("loss")}
    two = replace(one, name="two", curves=curves, config=override(one.config, ["head.hidden=32"]))
    made = comparison_of([one, two], None)
    assert made is not None
    assert "no accuracy in common" in made["sentences"][0]
    with pytest.raises(UserError, match="not among the runs"):
        comparison_of([one, two], "three")
