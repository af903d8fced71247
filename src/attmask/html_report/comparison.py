"""Several runs side by side: how their settings differ, what follows, and their last values."""

from collections.abc import Sequence
from typing import Any

from attmask.curves.groups import (
    ACCURACIES,
    baseline_group,
    compared_by,
    differing,
    group_runs,
    savings_against,
    settings_of,
)
from attmask.curves.run_curves import RunCurves

_SHOWN = (*ACCURACIES, "objects.attention", "label_free.alignment", "loss.total")
_NOT_SET = "–"
_NOTHING = "The runs have no accuracy in common, so their epochs are not compared."


def comparison_of(runs: Sequence[RunCurves], baseline: str | None) -> dict[str, Any] | None:
    """The comparison in the shape of the page; None for a single run."""
    groups = group_runs(runs)
    chosen = baseline_group(groups, baseline)
    if len(runs) < 2:
        return None
    key = compared_by(runs)
    savings = [
        savings_against(chosen, group, key) for group in groups if key and group is not chosen
    ]
    settings = [{"seed": str(run.config.seed), **settings_of(run.config)} for run in runs]
    keys = [name for name in _SHOWN if any(name in run.curves for run in runs)]
    return {
        "metric": key,
        "baseline": chosen.runs[0].name,
        "sentences": [each.sentence for each in savings if each is not None] if key else [_NOTHING],
        "differences": [
            {"key": name, "values": [each.get(name, _NOT_SET) for each in settings]}
            for name in differing(settings)
        ],
        "table": [
            {"run": run.name, "values": {name: _last(run, name) for name in keys}} for run in runs
        ],
        "keys": keys,
    }


def _last(run: RunCurves, key: str) -> float | None:
    if key not in run.curves:
        return None
    _, values = run.curves[key].points("step")
    return float(values[-1]) if len(values) else None
