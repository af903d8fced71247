"""attmask evaluate: measure frozen backbones by tasks."""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from attmask.commands.arguments import Commands, add_overrides, at_least
from attmask.errors import UserError

_OPTIONS = ("data", "out", "cache", "device", "precision", "batch_size", "workers", "seed")


def add(commands: Commands) -> None:
    """Its arguments."""
    parser = commands.add_parser(
        "evaluate",
        help="measure frozen backbones: k-NN, linear, clustering, retrieval, ...",
        description="Measure frozen backbones by tasks (see attmask tasks). CHECKPOINT is a run, "
        "one of its step-... folders, a file of weights or timm:NAME; RUN@untrained is its network "
        "before training, RUN@student its student. Several give one comparison table.",
    )
    parser.add_argument(
        "words", metavar="CHECKPOINT... TASK...", nargs="+", help="what to measure, and how"
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        action="append",
        required=True,
        help="where the images are; TASK=DIR for one task",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="write the cards (.json), the comparison (.md, .csv, .tex) or the picture that a task "
        "draws of all checkpoints (.png); may come again (cards are kept in RUN/evaluations too)",
    )
    parser.add_argument(
        "--cache", metavar="DIR", type=Path, help="where features are kept (default: RUN/features)"
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, ... (default: auto)")
    parser.add_argument(
        "--precision",
        choices=["auto", "bf16", "fp16", "fp32"],
        default="fp32",
        help="number format of forward passes (default: fp32)",
    )
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=at_least(1),
        default=64,
        help="images at once (default: 64)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=at_least(0),
        help="processes that read (default: by the cores)",
    )
    parser.add_argument(
        "--seed", type=at_least(0), default=0, help="seed of what is drawn (default: 0)"
    )
    parser.add_argument("--json", action="store_true", help="print the cards as JSON")
    add_overrides(parser, "knn.temperature=0.1: see attmask tasks TASK")
    parser.usage = "attmask evaluate CHECKPOINT... TASK... --data DIR [options] [key=value ...]"
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Call and print."""
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
            raise UserError(
                f"--out {file} has no known ending; use {', '.join(('.json', '.png', *FORMATS))}"
            )
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
        return 1 if failures else 0
    for file in parsed.out:  # first: whatever happens to the terminal, the files are there
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
    """`seed=5` is no setting of a task but an option of the command: say how it is written."""
    from attmask.evaluation.catalog import find_tasks, settings_of

    settings = {line.key for task in find_tasks(tasks) for line in settings_of(task)}
    for override in parsed.overrides:
        name, _, value = override.partition("=")
        if name in _OPTIONS and name not in settings:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{name} is an option of attmask evaluate; use {option} {value}")


def _places(given: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    """Where the images of each task are: one place for all, or TASK=DIR."""
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
