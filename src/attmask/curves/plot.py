"""Draw the curves of runs, and say how much sooner one reaches the result of another."""

from collections.abc import Sequence
from dataclasses import dataclass
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
)
_ACROSS = {"epoch": "epoch", "hours": "hours of training", "step": "step"}


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
        what = "hours" if across == "hours" else "values"
        raise UserError(f"the runs have no {what} to draw yet; train them, or use --across step")
    file = draw_panels(panels, [g.name for g in groups], out, across=_ACROSS[across])
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


def _compare(
    groups: Sequence[Group],
    runs: Sequence[RunCurves],
    metrics: Sequence[str] | None,
    baseline: str | None,
) -> tuple[list[Savings], list[str]]:
    """The savings of all groups against the baseline, by the first metric with a direction."""
    chosen = baseline_group(groups, baseline)
    if len(groups) < 2:
        return [], []
    asked = [key for key in metrics or () if runs[0].known(key).higher_is_better is not None]
    key = next((key for key in asked if all(key in run.curves for run in runs)), None)
    key = key or compared_by(runs)
    if key is None:
        return [], ["The runs have no accuracy in common, so their epochs are not compared."]
    found = [savings_against(chosen, group, key) for group in groups if group is not chosen]
    return [each for each in found if each is not None], []
