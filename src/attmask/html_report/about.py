"""What was run: changes from the nearest recipe, every setting, images, machine, command."""

from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import Any

from attmask.config import PretrainConfig
from attmask.curves.run_curves import RunCurves
from attmask.history import read_history
from attmask.overrides import describe, extra_of, fields_of, text_of
from attmask.recipe import recipe_for, recipes
from attmask.run_config import RunConfig
from attmask.tuning.config import TunedConfig

_OF_A_RUN = ("network.start", "init")
"""Settings that every run states anew, so that they are no change of a recipe."""


def about_of(run: RunCurves, facts: list[tuple[str, str]]) -> dict[str, Any]:
    """What was run, in the shape of the page; `facts` are names and values about the images."""
    recipe, changes = nearest_recipe(run.config)
    return {
        "recipe": recipe,
        "changes": [{"key": key, "recipe": old, "run": new} for key, old, new in changes],
        "config": [
            {"key": line.key, "value": line.value, "help": line.meaning, "paper": line.paper}
            for line in describe(run.config)
        ],
        "facts": [
            {"group": group, "name": name, "value": value}
            for group, rows in (
                ("images", facts),
                ("hardware", _hardware(run)),
                ("software", _software(run)),
            )
            for name, value in rows
        ],
        "command": command_of(run, recipe, changes),
    }


def nearest_recipe(config: RunConfig) -> tuple[str | None, list[tuple[str, str, str]]]:
    """The recipe from which the fewest settings were changed, and those: key, recipe, run."""
    kind = type(config)
    nearest: tuple[str | None, list[tuple[str, str, str]]] = (None, [])
    for name in recipes(kind):
        changed = _changes(recipe_for(kind, name).config, config)
        if nearest[0] is None or len(changed) < len(nearest[1]):
            nearest = (name, changed)
    return nearest


def command_of(
    run: RunCurves, recipe: str | None, changes: list[tuple[str, str, str]]
) -> str | None:
    """A command that repeats the run; None where its images are not known."""
    data = read_history(run.folder).data
    if data is None or recipe is None:
        return None
    start = [run.config.network.start] if isinstance(run.config, TunedConfig) else []
    words = [run.config.COMMAND, *start, data, "--recipe", recipe, "--out", str(run.folder)]
    if isinstance(run.config, PretrainConfig) and run.config.init is not None:
        words.append(f"init={run.config.init}")
    words += [f"{key}={value}" for key, _, value in changes]
    return " ".join(["attmask", *map(quote, map(str, words))])


def _changes(recipe: RunConfig, config: RunConfig) -> list[tuple[str, str, str]]:
    """Settings that differ, those that affect the result first."""
    ordered = sorted(fields_of(type(config)), key=lambda each: extra_of(each[1])["operational"])
    pairs = [
        (key, attrgetter(key)(recipe), attrgetter(key)(config))
        for key, _ in ordered
        if key not in _OF_A_RUN
    ]
    return [(key, text_of(old), text_of(new)) for key, old, new in pairs if old != new]


def _hardware(run: RunCurves) -> list[tuple[str, str]]:
    starts = [event for event in run.events if event.kind == "start"]
    if not starts:
        return []
    last = starts[-1]
    rows = [("host", last.host), ("device", last.device), ("number format", last.format)]
    rows.append(("processes", None if last.processes is None else str(last.processes)))
    return [(name, value) for name, value in rows if value]


def _software(run: RunCurves) -> list[tuple[str, str]]:
    starts = [event for event in run.events if event.kind == "start"]
    return list(starts[-1].software.items()) if starts else []


def image_facts(path: Path | None, splits: dict[str, int], classes: int) -> list[tuple[str, str]]:
    """Names and values about the images of a run."""
    rows = [("from", str(path))] if path else []
    rows += [(name, f"{count:,} images") for name, count in splits.items()]
    return [*rows, ("classes", f"{classes:,}")] if classes else rows
