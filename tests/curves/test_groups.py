"""Groups of runs, their bands and their savings, on curves written by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attmask.curves.groups import Group, band, differing, savings_against
from attmask.curves.run_curves import Axis, Curve, RunCurves
from attmask.metric_catalog import Known
from attmask.recipe import load_recipe

KEY = "knn.top1"
CATALOG = {KEY: Known(title="k-NN", unit="%", higher_is_better=True)}


def run(seed: int, epochs: list[float], values: list[float]) -> RunCurves:
    places = np.array(epochs, dtype=np.float64)
    axis, none = Axis(places, places / 10, places * 100), np.array([], dtype=np.float64)
    config = load_recipe("tiny").model_copy(update={"seed": seed})
    curve = Curve(axis, np.array(values, dtype=np.float64))
    return RunCurves(
        f"run-{seed}", Path("run"), config, [], [], [], Axis(none, none, none), axis,
        {KEY: curve}, CATALOG,
    )  # fmt: skip


def test_a_band_is_interpolated_to_the_epochs_that_all_seeds_have() -> None:
    group = Group("a", [run(0, [0, 1, 2, 3], [10, 20, 30, 40]), run(1, [0, 2], [20, 60])])
    found = band(group, KEY, "epoch")
    assert found is not None
    np.testing.assert_allclose(found.places, [0, 1, 2])
    np.testing.assert_allclose(found.mean, [15, 30, 45])
    np.testing.assert_allclose(found.low, [10, 20, 30])
    np.testing.assert_allclose(found.high, [20, 40, 60])
    hours = band(group, KEY, "hours")
    assert hours is not None
    np.testing.assert_allclose(hours.places, [0, 0.1, 0.2])


def test_values_that_are_not_numbers_are_left_out_of_a_band() -> None:
    found = band(Group("a", [run(0, [0, 1, 2], [10, np.nan, 30])]), KEY, "epoch")
    assert found is not None
    assert found.places.tolist() == [0, 2]
    assert band(Group("a", [run(0, [0], [np.nan])]), KEY, "epoch") is None
    apart = Group("a", [run(0, [0, 1], [1, 2]), run(1, [5, 6], [1, 2])])
    assert band(apart, KEY, "epoch") is None


def test_seeds_are_paired_with_those_of_the_baseline() -> None:
    baseline = Group("block", [run(0, [0, 10], [0, 40]), run(1, [0, 10], [0, 80])])
    group = Group("high", [run(0, [0, 10], [0, 80]), run(1, [0, 10], [0, 80])])
    found = savings_against(baseline, group, KEY)
    assert found is not None
    assert [each.epoch for each in found.reached] == [5, 10]
    assert (found.target, found.mean) == (60, 0.25)


def test_a_baseline_that_was_at_its_final_value_long_before_its_end_is_told() -> None:
    flat = Group("block", [run(0, [0, 2, 10], [0, 40, 40])])
    group = Group("high", [run(0, [0, 2, 10], [0, 40, 80])])
    found = savings_against(flat, group, KEY)
    assert found is not None
    assert found.baseline_reached == 2
    assert "block itself was there at epoch 2.0" in found.sentence
    rising = savings_against(Group("block", [run(0, [0, 10], [0, 40])]), group, KEY)
    assert rising is not None
    assert "itself" not in rising.sentence


@pytest.mark.parametrize("seeds", [(2, 3), (0, 2)])
def test_other_seeds_are_held_against_the_mean_of_the_baseline(seeds: tuple[int, int]) -> None:
    baseline = Group("block", [run(0, [0, 10], [0, 40]), run(1, [0, 10], [0, 80])])
    group = Group("high", [run(seed, [0, 10], [0, 80]) for seed in seeds])
    found = savings_against(baseline, group, KEY)
    assert found is not None
    assert [each.epoch for each in found.reached] == [7.5, 7.5]


def test_repeated_runs_of_one_seed_all_count_in_the_mean() -> None:
    baseline = Group("block", [run(0, [0, 10], [0, 40]), run(0, [0, 10], [0, 80])])
    found = savings_against(baseline, Group("high", [run(0, [0, 10], [0, 80])]), KEY)
    assert found is not None
    assert (found.target, found.reached[0].epoch) == (60, 7.5)


def test_a_baseline_that_was_evaluated_at_its_start_alone_gives_no_savings() -> None:
    baseline = Group("block", [run(0, [0], [40])])
    assert savings_against(baseline, Group("high", [run(0, [0, 10], [0, 80])]), KEY) is None
    undirected = replace(run(0, [0, 10], [0, 80]), catalog={KEY: Known(title="x")})
    assert savings_against(Group("a", [undirected]), Group("b", [undirected]), KEY) is None


def test_only_settings_that_are_not_alike_differ() -> None:
    assert differing([{"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}]) == ["b", "c"]
