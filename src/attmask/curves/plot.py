"""Draw the curves of runs, and say how much sooner one reaches the result of another."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from attmask.curves.figure import Panel, check_format, draw_panels
from attmask.curves.groups import (
    Group,
    band,
    baseline_group,
    compared_by,
    group_runs,
    savings_against,
)
from attmask.curves.run_curves import Across, RunCurves, read_all
from attmask.curves.savings import Savings
from attmask.errors import UserError
from attmask.metric_catalog import group_of
from attmask.overrides import unknown
from attmask.run_baselines import PIXELS, read_baselines

DEFAULT_METRICS = (
    "loss.total",
    "loss.cls",
    "loss.patch",
    "health.teacher_entropy",
    "knn.top1",
    "label_free.rank",
    "label_free.alignment",
    "classify.top1",
    "segment.miou",
    "detect.box_ap",
    "schedule.lr",
    "schedule.weight_decay",
    "schedule.momentum",
    "schedule.cls_temperature",
)
_UNITS = (("seconds", 3600.0, 2 / 60), ("minutes", 60.0, 2.0), ("hours", 1.0, math.inf))
"""Units of time, how many are an hour, and the hours up to which they are used."""


@dataclass(frozen=True)
class Plotted:
    """A figure of curves, and what the comparison of its runs says."""

    file: Path
    savings: Sequence[Savings]
    notes: Sequence[str]


def plot_runs(
    folders: Sequence[Path],
    out: Path,
    *,
    metrics: Sequence[str] | None,
    across: Across,
    baseline: str | None,
) -> Plotted:
    """Draw one panel for each metric to a .png, .svg or .pdf file."""
    check_format(out)
    if not folders:
        raise UserError("no run was given; give at least one folder of a run")
    runs = read_all(folders)
    groups = group_runs(runs)
    chosen = _chosen(runs, metrics)
    panels = [_panel(groups, key, across) for key in chosen]
    panels = [panel for panel in panels if panel.bands]
    if not panels:
        if across != "step" and any(run.curves for run in runs):
            raise UserError(f"the runs have no {across} in their logs; use --across step")
        raise UserError("the runs have no values to draw yet; train them first")
    words: str = across
    if across == "hours":
        panels, words = _in_readable_time(panels)
    file = draw_panels(panels, [g.name for g in groups], out, across=words)
    compared, notes = _compare(groups, runs, metrics, baseline)
    return Plotted(file, compared, notes)


def _chosen(runs: Sequence[RunCurves], asked: Sequence[str] | None) -> list[str]:
    there = sorted({key for run in runs for key in run.curves})
    if asked is None:
        return [key for key in DEFAULT_METRICS if key in there] or there[:9]
    for key in asked:
        if key not in there:
            raise UserError(unknown("metric", key, there))
    return list(dict.fromkeys(asked))


def _panel(groups: Sequence[Group], key: str, across: Across) -> Panel:
    bands = {group.name: found for group in groups if (found := band(group, key, across))}
    known = next(run for group in groups for run in group.runs if key in run.curves).known(key)
    title = f"{known.title}, {known.unit}" if known.unit else known.title
    levels = {}
    if key == "knn.top1":
        folders = [run.folder for group in groups for run in group.runs]
        baselines = [read_baselines(folder) for folder in folders]
        if PIXELS in baselines[0] and all(each == baselines[0] for each in baselines):
            levels = {PIXELS: baselines[0][PIXELS]}
    return Panel(title, bands, levels)


def _in_readable_time(panels: Sequence[Panel]) -> tuple[list[Panel], str]:
    """Panels over hours in seconds, minutes or hours, as long as the longest run asks for."""
    longest = max(float(band.places[-1]) for panel in panels for band in panel.bands.values())
    unit, factor = next((unit, factor) for unit, factor, end in _UNITS if longest < end)
    scaled = [
        replace(
            panel,
            bands={n: replace(b, places=b.places * factor) for n, b in panel.bands.items()},
        )
        for panel in panels
    ]
    return scaled, f"{unit} of training"


def _compare(
    groups: Sequence[Group],
    runs: Sequence[RunCurves],
    metrics: Sequence[str] | None,
    baseline: str | None,
) -> tuple[list[Savings], list[str]]:
    """The savings of all groups against the baseline, by the first accuracy asked for.

    Losses of different masks do not measure the same.
    """
    chosen = baseline_group(groups, baseline)
    if len(groups) < 2:
        return [], []
    asked = [key for key in metrics or () if group_of(key) == "accuracy"]
    key = next((key for key in asked if all(key in run.curves for run in runs)), None)
    key = key or compared_by(runs)
    if key is None:
        return [], ["The runs have no accuracy in common, so their epochs are not compared."]
    found = [savings_against(chosen, group, key) for group in groups if group is not chosen]
    if None in found:
        return [], [f"{chosen.name} was not evaluated after its start, so epochs are not compared."]
    notes = []
    if not all(run.is_finished for run in chosen.runs):
        notes = [f"The training of {chosen.name} has not ended, so its final value may change."]
    return [each for each in found if each is not None], notes
