"""Curves are thinned without losing the extremes of the loss."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attmask.curves.run_curves import Axis, Curve, RunCurves, read_curves
from attmask.html_report.series import MOST_POINTS, metrics_of, series_of


def numbers(array: dict[str, Any]) -> np.ndarray:
    kinds = {"f4": "<f4", "i4": "<i4"}
    return np.frombuffer(base64.b64decode(array["data"]), kinds[array["dtype"]])


def of_steps(run: RunCurves, **curves: np.ndarray) -> RunCurves:
    count = len(next(iter(curves.values())))
    axis = Axis(*(np.arange(1, count + 1, dtype=np.float64) for _ in range(3)))
    named = {key.replace("_", "."): Curve(axis, values) for key, values in curves.items()}
    return replace(run, steps=axis, curves=named)


def test_a_long_curve_keeps_the_spikes_of_the_loss(run: Path) -> None:
    loss = np.full(50_000, 5.0)
    loss[[31_111, 40_000]] = 99.0, -1.0
    made = series_of(of_steps(read_curves(run), loss_total=loss, loss_cls=loss / 2))
    drawn = numbers(made["series"]["loss.total"]["values"])
    assert len(drawn) <= MOST_POINTS + 2
    assert (drawn.max(), drawn.min()) == (99.0, -1.0)
    steps = numbers(made["axes"][0]["step"])
    assert steps[drawn.argmax()] == 31_112
    assert numbers(made["series"]["loss.cls"]["values"]).max() == 49.5


def test_a_metric_without_a_number_is_left_out_and_gaps_stay_gaps(run: Path) -> None:
    nothing, half = np.full(10, np.nan), np.array([1.0, np.nan] * 5)
    made = series_of(of_steps(read_curves(run), a_b=nothing, loss_total=half))
    assert set(made["series"]) == {"loss.total"}
    assert np.isnan(numbers(made["series"]["loss.total"]["values"])).sum() == 5


def test_a_run_has_both_axes_its_baseline_and_what_its_metrics_are(run: Path) -> None:
    curves = read_curves(run)
    made = series_of(curves)
    assert made["series"]["loss.total"]["axis"] == 0
    assert made["series"]["knn.top1"]["axis"] == 1
    assert numbers(made["axes"][1]["epoch"]).tolist() == [0, 1, 2, 3]
    assert [level["title"] for level in made["levels"]] == ["raw pixels"]
    known = metrics_of([curves])
    assert known["knn.top1"] == {
        "title": "k-NN top-1 accuracy (k = 20)",
        "unit": "%",
        "higher": True,
        "group": "accuracy",
    }
