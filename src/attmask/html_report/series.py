"""The curves of a run as the page draws them: two axes, and a row of values for each metric."""

from typing import Any

import numpy as np

from attmask.curves.figure import thinned
from attmask.curves.run_curves import Axis, RunCurves
from attmask.html_report.encoding import encoded
from attmask.metric_catalog import group_of
from attmask.run_baselines import PIXELS, read_baselines

MOST_POINTS = 1200
"""Of a curve; more cannot be told apart on a screen."""
_LOSS = "loss.total"
_ACCURACY = "knn.top1"


def series_of(run: RunCurves) -> dict[str, Any]:
    """Axes, series and lines to compare with."""
    kept = [_kept(run, axis) for axis in (run.steps, run.evaluations)]
    return {
        "axes": [
            _axis(axis, chosen)
            for axis, chosen in zip((run.steps, run.evaluations), kept, strict=True)
        ],
        "series": {
            key: {
                "axis": (at := 0 if curve.axis is run.steps else 1),
                "values": encoded(curve.values[kept[at]], "f4"),
            }
            for key, curve in run.curves.items()
            if np.isfinite(curve.values[kept[0 if curve.axis is run.steps else 1]]).any()
        },
        "levels": [
            {"metric": _ACCURACY, "value": value, "title": name}
            for name, value in read_baselines(run.folder).items()
            if name == PIXELS and _ACCURACY in run.curves
        ],
    }


def metrics_of(runs: list[RunCurves]) -> dict[str, dict[str, Any]]:
    """What the metrics of all runs are."""
    known = {key: run.known(key) for run in reversed(runs) for key in run.curves}
    return {
        key: {
            "title": metric.title,
            "unit": metric.unit,
            "higher": metric.higher_is_better,
            "group": group_of(key),
        }
        for key, metric in sorted(known.items())
    }


def _kept(run: RunCurves, axis: Axis) -> np.ndarray:
    """The records that are drawn, among them the extremes of the loss."""
    loss = run.curves.get(_LOSS)
    if loss is not None and loss.axis is axis:
        return thinned(np.nan_to_num(loss.values, nan=np.nanmean(loss.values)), MOST_POINTS)
    return thinned(np.zeros(len(axis.step)), MOST_POINTS)


def _axis(axis: Axis, kept: np.ndarray) -> dict[str, Any]:
    return {
        "epoch": encoded(axis.epoch[kept], "f4"),
        "hours": encoded(axis.hours[kept], "f4"),
        "step": encoded(axis.step[kept], "i4"),
    }
