"""Runs of the same settings but for the seed, as one group."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from jaxtyping import Float64

from attmask.curves.run_curves import Across, RunCurves
from attmask.curves.savings import Reached, Savings, first_epoch_reaching
from attmask.errors import UserError
from attmask.metric_catalog import Known
from attmask.overrides import extra_of, fields_of
from attmask.run_config import RunConfig

ACCURACIES = ("knn.top1", "classify.top1", "segment.miou", "detect.box_ap", "segment_knn.miou")
"""The metrics by which runs are compared, the first that all have."""
_PLACES = 200


@dataclass(frozen=True)
class Group:
    """Runs whose settings differ in the seed alone."""

    name: str
    runs: Sequence[RunCurves]


@dataclass(frozen=True)
class Band:
    """The mean of several curves with the lowest and the highest, where all of them are."""

    places: Float64[np.ndarray, " n"]
    mean: Float64[np.ndarray, " n"]
    low: Float64[np.ndarray, " n"]
    high: Float64[np.ndarray, " n"]


def settings_of(config: RunConfig) -> dict[str, str]:
    """The settings that affect the result, as text, without the seed."""
    return {
        key: str(attrgetter(key)(config))
        for key, field in fields_of(type(config))
        if not extra_of(field)["operational"] and key != "seed"
    }


def differing(configs: Sequence[dict[str, str]]) -> list[str]:
    """The settings that are not the same in all configs."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if len({config.get(key) for config in configs}) > 1]


def group_runs(runs: Sequence[RunCurves]) -> list[Group]:
    """Runs by their settings; groups of several are named after the settings that differ."""
    members: dict[tuple[tuple[str, str], ...], list[RunCurves]] = {}
    for run in runs:
        members.setdefault(tuple(settings_of(run.config).items()), []).append(run)
    if all(len(group) == 1 for group in members.values()):
        return [Group(run.name, [run]) for run in runs]
    configs = [dict(key) for key in members]
    keys = differing(configs)
    short = {key: key.rpartition(".")[2] for key in keys}
    return [
        Group(
            ", ".join(
                f"{short[key] if list(short.values()).count(short[key]) == 1 else key}="
                f"{config.get(key, 'none')}"
                for key in keys
            )
            or group[0].name,
            group,
        )
        for config, group in zip(configs, members.values(), strict=True)
    ]


def band(group: Group, key: str, across: Across) -> Band | None:
    """The mean of a metric over the runs of a group, interpolated to common places."""
    points = [run.curves[key].points(across) for run in group.runs if key in run.curves]
    points = [(places, values) for places, values in points if len(places)]
    if not points:
        return None
    if len(points) == 1:
        places, values = points[0]
        return Band(places, values, values, values)
    first = max(places[0] for places, _ in points)
    last = min(places[-1] for places, _ in points)
    union = np.unique(np.concatenate([places for places, _ in points]))
    common = union[(union >= first) & (union <= last)]
    if len(common) > _PLACES:
        common = np.linspace(first, last, _PLACES)
    if not len(common):
        return None
    rows = np.stack([np.interp(common, places, values) for places, values in points])
    return Band(common, rows.mean(0), rows.min(0), rows.max(0))


def compared_by(runs: Sequence[RunCurves]) -> str | None:
    """The accuracy that all runs have; None if there is none."""
    return next((key for key in ACCURACIES if all(key in run.curves for run in runs)), None)


def baseline_group(groups: Sequence[Group], named: str | None) -> Group:
    """The group that a user names by a run or a group; the first if nothing is named."""
    if named is None:
        return groups[0]
    for group in groups:
        if named == group.name or any(
            named in (run.name, str(run.folder), run.folder.absolute().name) for run in group.runs
        ):
            return group
    names = ", ".join(group.name for group in groups)
    raise UserError(f"the baseline {named} is not among the runs; give one of {names}")


def savings_against(baseline: Group, group: Group, key: str) -> Savings | None:
    """How much sooner the runs of a group reach the final value of the baseline.

    Runs are paired by seed where the baseline has the same seeds, else all are held against the
    mean of the baseline. None if the baseline was not evaluated after its start.
    """
    known = group.runs[0].known(key)
    ends = [
        (run.config.seed, places[-1], values[-1])
        for run in baseline.runs
        for places, values in [run.curves[key].points("epoch")]
        if len(places) and places[-1] > 0
    ]
    if not ends or known.higher_is_better is None:
        return None
    by_seed = {seed: (epochs, target) for seed, epochs, target in ends}
    mean = np.mean([end[1:] for end in ends], axis=0)
    paired = len(by_seed) == len(ends) and all(run.config.seed in by_seed for run in group.runs)
    reached = []
    for run in group.runs:
        epochs, target = by_seed[run.config.seed] if paired else mean
        epoch = _reaching(run, key, float(target), known)
        reached.append(Reached(run.name, epoch, float(epochs)))
    own = [
        _reaching(run, key, float(run.curves[key].points("epoch")[1][-1]), known)
        for run in baseline.runs
        if len(run.curves[key].points("epoch")[0])
    ]
    itself = float(np.mean([epoch for epoch in own if epoch is not None]))
    target = float(mean[1])
    return Savings(group.name, baseline.name, known.title, known.unit, target, reached, itself)


def _reaching(run: RunCurves, key: str, target: float, known: Known) -> float | None:
    places, values = run.curves[key].points("epoch")
    higher = known.higher_is_better is not False
    return first_epoch_reaching(places, values, target, higher_is_better=higher)
