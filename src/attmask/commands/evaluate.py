"""attmask evaluate: evaluate frozen backbones."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from attmask.commands.arguments import Commands, add_forward, add_overrides, at_least
from attmask.errors import UserError

_OPTIONS = ("data", "out", "cache", "device", "precision", "batch_size", "workers", "seed")


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "evaluate",
        help="evaluate frozen backbones: k-NN, linear, clustering, ...",
        description="Evaluate frozen backbones on one or more tasks (see attmask tasks). "
        "CHECKPOINT is a run, one of its step-... folders, a weights file or timm:NAME. "
        "RUN@untrained is the run's network before training, RUN@student its student. Several "
        "checkpoints are compared in one table.",
    )
    parser.add_argument(
        "words", metavar="CHECKPOINT... TASK...", nargs="+", help="models to evaluate, then tasks"
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        action="append",
        required=True,
        help="images of all tasks, or TASK=DIR for one task; may be repeated",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="also write the cards (.json), the table (.md, .csv, .tex) or the plot that a task "
        "draws of all checkpoints (.png); may be repeated",
    )
    parser.add_argument(
        "--cache", metavar="DIR", type=Path, help="feature cache (default: RUN/features)"
    )
    add_forward(parser)
    parser.add_argument("--seed", type=at_least(0), default=0, help="random seed (default: 0)")
    parser.add_argument("--json", action="store_true", help="print the cards as JSON")
    add_overrides(parser, "knn.temperature=0.1; see attmask tasks TASK")
    parser.usage = (
        "attmask evaluate CHECKPOINT... TASK... --data DIR [options]\n"
        "                        [key=value ...]"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask import distributed
    from attmask.api import evaluate
    from attmask.evaluation.catalog import TASKS, find_tasks, split_words
    from attmask.evaluation.reporting.card import write_cards, write_text
    from attmask.evaluation.reporting.draw import check_drawable, draw_cards
    from attmask.evaluation.reporting.table import FORMATS, compare, render
    from attmask.evaluation.run import UnfinishedError

    checkpoints, tasks = split_words(parsed.words)
    _refuse_options_as_overrides(parsed, tasks)
    for file in parsed.out:
        if file.suffix not in (".json", ".png", *FORMATS):
            known = ", ".join((".json", ".png", *FORMATS))
            raise UserError(f"--out {file} has an unknown extension; use {known}")
        if file.suffix == ".png":
            check_drawable(find_tasks(tasks), TASKS, file)
        if file.is_dir() or (file.parent.exists() and not os.access(file.parent, os.W_OK)):
            raise UserError(f"cannot write {file}; choose another --out")
    failures: list[str] = []
    try:
        cards = evaluate(
            checkpoints,
            tasks,
            data=_places(parsed.data, tasks),
            overrides=parsed.overrides,
            cache=parsed.cache,
            device=parsed.device,
            precision=parsed.precision,
            batch_size=parsed.batch_size,
            workers=parsed.workers,
            seed=parsed.seed,
        )
    except UnfinishedError as fault:
        cards, failures = fault.cards, fault.failures
    if not distributed.launched_main():
        for failure in failures:  # the main process knows only that this one is gone
            print(f"attmask: {failure}", file=sys.stderr)
        return 1 if failures else 0
    for file in parsed.out:  # before printing, so that the files exist even if the terminal is gone
        if file.suffix == ".json":
            write_cards(cards, file)
        elif file.suffix == ".png":
            draw_cards(find_tasks(tasks), cards, file)
        else:
            write_text(file, FORMATS[file.suffix](compare(cards)))
    if parsed.json:
        print(json.dumps([card.to_dict() for card in cards], indent=2))
    else:
        print(render(cards, width=shutil.get_terminal_size((100, 24)).columns), end="")
    for failure in failures:
        print(f"attmask: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _refuse_options_as_overrides(parsed: argparse.Namespace, tasks: Sequence[str]) -> None:
    """Refuse `seed=5`, which is an option of the command rather than a setting of a task."""
    from attmask.evaluation.catalog import find_tasks, settings_of

    settings = {line.key for task in find_tasks(tasks) for line in settings_of(task)}
    for override in parsed.overrides:
        name, _, value = override.partition("=")
        if name in _OPTIONS and name not in settings:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{name} is an option of attmask evaluate; use {option} {value}")


def _places(given: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    """The images of each task: one location for all, or TASK=DIR."""
    from attmask.evaluation.catalog import TASKS

    for_all: list[str] = []
    for_one: dict[str, str] = {}
    for place in given:
        task, equals, folder = place.partition("=")
        if not equals or task not in {known.name for known in TASKS}:
            for_all.append(place)
        elif task in tasks:
            for_one[task] = folder
        else:
            raise UserError(f"--data {place} is for {task}, which is not among {', '.join(tasks)}")
    if len(for_all) > 1:
        raise UserError(f"--data was given twice ({', '.join(for_all)}); use TASK=DIR for one task")
    return {task: place for place in for_all for task in tasks} | for_one
