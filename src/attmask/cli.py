"""The command line: parses and prints, never computes."""

import argparse
import difflib
import io
import json
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from attmask import __version__
from attmask.errors import UserError

if TYPE_CHECKING:
    from attmask.train import Outcome

INTERRUPTED = 130
_FLAGS = ("--help", "--version", "--json")  # the options without a value
_EVALUATE_OPTIONS = (
    "data",
    "out",
    "cache",
    "device",
    "precision",
    "batch_size",
    "workers",
    "seed",
)


class Parser(argparse.ArgumentParser):
    """argparse with errors in one line, a near name, and exit status 1."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and where help is."""
        self.exit(1, f"attmask: {message}; see {self.prog} --help\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        choices = [str(choice) for choice in action.choices or ()]
        if not choices or value in choices:
            return
        near = difflib.get_close_matches(str(value), choices, n=1)
        if action.option_strings:
            wanted = f"{', '.join(choices[:-1])} or {choices[-1]}"
            raise argparse.ArgumentError(None, f"{action.option_strings[0]} {value}: use {wanted}")
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(choices)}"
        raise argparse.ArgumentError(None, f"there is no command {value}; {advice}")


def build_parser() -> Parser:
    """All commands with their arguments."""
    parser = Parser(
        prog="attmask",
        description="Pre-train vision transformers without labels, with attention-guided masking.",
    )
    parser.add_argument("--version", action="version", version=f"attmask {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo", help="make images, pre-train, evaluate and draw, in minutes on a CPU"
    )
    demo.add_argument("--out", type=Path, default=Path("demo"), help="folder (default: demo)")
    demo.add_argument("--seed", type=int, default=0, help="seed of the run (default: 0)")
    _add_overrides(demo)
    demo.set_defaults(run=_demo)

    pretrain = commands.add_parser(
        "pretrain",
        help="pre-train on a folder of images; the same command resumes",
        description="Pre-train on a folder of images: one sub-folder a class, flat without labels, "
        "or train/ beside val/ and test/, which are held out. If RUN holds a checkpoint of the "
        "same settings, training goes on.",
    )
    pretrain.add_argument("data", metavar="DATA", type=_images, help="folder of images")
    pretrain.add_argument(
        "--recipe",
        help="name (see attmask recipes) or YAML file; by default cpu, or small on a GPU",
    )
    pretrain.add_argument(
        "--out",
        metavar="RUN",
        type=Path,
        help="folder of the run (default: runs/DATA-RECIPE and the settings that were changed)",
    )
    _add_overrides(pretrain)
    pretrain.set_defaults(run=_pretrain)

    resume = commands.add_parser(
        "resume",
        help="go on with a run, with its own settings and images",
        description="Go on with a run that was stopped, with its own settings and images; "
        "key=value may change how it is computed, not what.",
    )
    resume.add_argument("folder", metavar="RUN", type=Path, help="folder of the run")
    resume.add_argument("--data", metavar="DATA", type=Path, help="where the images are now")
    _add_overrides(resume, "train.workers=2: see attmask config NAME")
    resume.set_defaults(run=_resume)

    inspect = commands.add_parser(
        "inspect",
        help="audit images before training: faults, copies, sizes, and what to run",
        description="Look at images before hours of training: sizes, kinds, classes, unreadable "
        "files, copies, held-out pictures that are in train; then advise what to run, and time "
        "some steps of it on this machine.",
    )
    inspect.add_argument("data", metavar="DATA", type=_images, help="images, as for pretrain")
    inspect.add_argument("--json", action="store_true", help="print one JSON document")
    inspect.add_argument(
        "--max-images",
        metavar="N",
        type=int,
        default=20_000,
        help="look at no more than these, evenly spread (default: 20000)",
    )
    inspect.add_argument("--recipe", help="advise on this recipe (default: one that fits)")
    inspect.set_defaults(run=_inspect)

    evaluate = commands.add_parser(
        "evaluate",
        help="measure frozen backbones: k-NN, linear, clustering, retrieval, ...",
        description="Measure frozen backbones by tasks (see attmask tasks). CHECKPOINT is a run, "
        "one of its step-... folders, a file of weights or timm:NAME; RUN@untrained is its network "
        "before training, RUN@student its student. Several give one comparison table.",
    )
    evaluate.add_argument(
        "words", metavar="CHECKPOINT... TASK...", nargs="+", help="what to measure, and how"
    )
    evaluate.add_argument(
        "--data",
        metavar="DIR",
        action="append",
        required=True,
        help="where the images are; TASK=DIR for one task",
    )
    evaluate.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="write the cards (.json), the comparison (.md, .csv, .tex) or the curves of occlusion "
        "(.png); may come again "
        "(cards are kept in RUN/evaluations too)",
    )
    evaluate.add_argument(
        "--cache", metavar="DIR", type=Path, help="where features are kept (default: RUN/features)"
    )
    evaluate.add_argument("--device", default="auto", help="cpu, cuda, ... (default: auto)")
    evaluate.add_argument(
        "--precision",
        choices=["auto", "bf16", "fp16", "fp32"],
        default="fp32",
        help="number format of forward passes (default: fp32)",
    )
    evaluate.add_argument(
        "--batch-size",
        metavar="N",
        type=_at_least(1),
        default=64,
        help="images at once (default: 64)",
    )
    evaluate.add_argument(
        "--workers",
        metavar="N",
        type=_at_least(0),
        help="processes that read (default: by the cores)",
    )
    evaluate.add_argument(
        "--seed", type=_at_least(0), default=0, help="seed of what is drawn (default: 0)"
    )
    evaluate.add_argument("--json", action="store_true", help="print the cards as JSON")
    _add_overrides(evaluate, "knn.temperature=0.1: see attmask tasks TASK")
    evaluate.usage = "attmask evaluate CHECKPOINT... TASK... --data DIR [options] [key=value ...]"
    evaluate.set_defaults(run=_evaluate)

    tasks = commands.add_parser("tasks", help="list the tasks, or every setting of one")
    tasks.add_argument("name", metavar="TASK", nargs="?", help="show its settings")
    tasks.set_defaults(run=_tasks)

    recipes = commands.add_parser("recipes", help="list the recipes")
    recipes.set_defaults(run=_recipes)

    config = commands.add_parser(
        "config", help="print every setting of a recipe, its meaning and the paper's value"
    )
    config.add_argument("name", metavar="NAME", help="name of a recipe or YAML file")
    _add_overrides(config)
    config.set_defaults(run=_config)
    return parser


def _add_overrides(
    parser: argparse.ArgumentParser, example: str = "masking.strategy=hint: see attmask config NAME"
) -> None:
    """Say that key=value is taken, between options too; `parse` collects them."""
    parser.set_defaults(overrides=[])
    parser.usage = f"{parser.format_usage().removeprefix('usage: ').strip()} [key=value ...]"
    parser.epilog = f"key=value changes a setting, e.g. {example}"


def _at_least(least: int) -> Callable[[str], int]:
    """Whole numbers from `least` on, and a line that says so."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) < 2**63:
            raise argparse.ArgumentTypeError(f"{text} is no whole number of at least {least}")
        return int(text)

    return number


def _images(text: str) -> Path:
    """Where the images are; an empty text is refused."""
    from attmask.data.sources import images_path

    try:
        return images_path(text)
    except UserError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command, its arguments and overrides (which argparse would not take after options)."""
    parser = build_parser()
    words, overrides = _without_overrides(sys.argv[1:] if arguments is None else arguments)
    parsed, rest = parser.parse_known_args(words)
    if rest or (overrides and not hasattr(parsed, "overrides")):
        parser.error(f"unknown argument {(rest or overrides)[0]}")
    parsed.overrides = overrides
    return parsed


def _without_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line, and apart from them its overrides, wherever these stand.

    A word behind an option is the option's value (`--data knn=DIR`), and a path that exists is a
    path, whatever it is called.
    """
    words: list[str] = []
    overrides: list[str] = []
    for before, word in pairwise(["", *arguments]):
        is_value = before.startswith("--") and before not in _FLAGS and "=" not in before
        if not is_value and _is_assignment(word) and not Path(word).exists():
            overrides.append(word)
        else:
            words.append(word)
    return words, overrides


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; exit status 0, or 1 with one line for what the user can mend."""
    _print_anywhere()
    parsed = parse(arguments)
    _show_log()
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        return run(parsed)
    except UserError as fault:
        print(f"attmask: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("attmask: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _print_anywhere() -> None:
    """A terminal or a pipe that has no letter for a sign gets a question mark instead."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _show_log() -> None:
    """The library logs; a person reads the bare lines."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("attmask").setLevel(logging.INFO)


def _pretrain(parsed: argparse.Namespace) -> int:
    from attmask.api import default_out, default_recipe, pretrain

    recipe = parsed.recipe or default_recipe()
    out = parsed.out or default_out(parsed.data, recipe, parsed.overrides)
    outcome = pretrain(parsed.data, recipe=recipe, out=out, overrides=parsed.overrides)
    return _tell(outcome)


def _resume(parsed: argparse.Namespace) -> int:
    from attmask.api import resume

    outcome = resume(parsed.folder, data=parsed.data, overrides=parsed.overrides)
    if outcome.was_finished:
        print(f"attmask: {outcome.run} was finished already, {outcome.steps} steps")
        return 0
    return _tell(outcome)


def _tell(outcome: "Outcome") -> int:
    """Say how a run ended."""
    if not outcome.finished:
        print(
            f"attmask: stopped and saved at step {outcome.steps} of {outcome.total_steps}; "
            "the same command goes on from there"
        )
        return INTERRUPTED
    print(
        f"attmask: done, {outcome.steps} steps; the backbone and all numbers are in {outcome.run}"
    )
    return 0


def _inspect(parsed: argparse.Namespace) -> int:
    from attmask.api import inspect
    from attmask.audit.table import render

    audit = inspect(parsed.data, recipe=parsed.recipe, max_images=parsed.max_images)
    if parsed.json:
        print(json.dumps(audit.to_dict(), indent=2))
    else:
        print(render(audit, width=min(100, shutil.get_terminal_size().columns)), end="")
    return 0


def _evaluate(parsed: argparse.Namespace) -> int:
    from attmask import distributed
    from attmask.api import evaluate
    from attmask.evaluation.card import write_cards, write_text
    from attmask.evaluation.catalog import split_words
    from attmask.evaluation.evaluate import UnfinishedError
    from attmask.evaluation.occlusion import draw_cards
    from attmask.evaluation.table import FORMATS, compare, render

    checkpoints, tasks = split_words(parsed.words)
    _refuse_options_as_overrides(parsed, tasks)
    for file in parsed.out:
        if file.suffix not in (".json", ".png", *FORMATS):
            raise UserError(
                f"--out {file} has no known ending; use {', '.join(('.json', '.png', *FORMATS))}"
            )
        if file.suffix == ".png" and "occlusion" not in tasks:
            raise UserError(f"{file} would show accuracy against ratio; add the task occlusion")
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
        elif file.suffix != ".png":
            write_text(file, FORMATS[file.suffix](compare(cards)))
        elif any(card.task == "occlusion" for card in cards):
            draw_cards(cards, file)
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
        if name in _EVALUATE_OPTIONS and name not in settings:
            option = f"--{name.replace('_', '-')}"
            raise UserError(f"{name} is an option of attmask evaluate; use {option} {value}")


def _is_assignment(word: str) -> bool:
    """Whether a word is key=value and not a path with an equals sign in it."""
    key, equals, _ = word.partition("=")
    return bool(equals) and re.fullmatch(r"\w[\w.-]*", key) is not None


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


def _tasks(parsed: argparse.Namespace) -> int:
    from attmask.evaluation.catalog import TASKS, find_tasks, settings_of

    if parsed.name is None:
        for task in TASKS:
            print(f"{task.name:<24}v{task.version}  {task.about}")
        return 0
    (task,) = find_tasks([parsed.name])
    print(f"{task.name}, version {task.version}: {task.about}\nimages: {task.dataset.layout}")
    for line in settings_of(task):
        paper = f" (paper: {line.paper})" if line.paper else ""
        print(f"{f'{line.key}={line.value}':<40} {line.meaning}{paper}")
    return 0


def _demo(parsed: argparse.Namespace) -> int:
    from attmask.demo import Demo

    began = time.monotonic()
    print(f"attmask: making images and pre-training in {parsed.out}", file=sys.stderr)
    demo = Demo(parsed.out, seed=parsed.seed, overrides=parsed.overrides)
    outcome = demo.train()
    if not outcome.finished:
        print(f"attmask: stopped and saved at step {outcome.steps}; the same command goes on")
        return INTERRUPTED
    report = demo.report()
    print("\nk-NN accuracy on images never trained on, per cent")
    rows = {**report.rivals, "untrained network": report.untrained, "trained": report.trained}
    for name, accuracy in rows.items():
        print(f"  {name:<20}{accuracy:6.1f}  {'█' * round(accuracy / 2)}")
    print(f"  {'gain':<20}{report.trained - report.untrained:+6.1f}")
    before, after = report.objects_before, report.objects_after
    print(f"\nThe object covers {after['area']:.0%} of an image")
    shares = f"{before['attention']:.0%} untrained, {after['attention']:.0%} trained"
    print(f"  attention on it: {shares}")
    print("  hidden by a mask of 30 % of the patches, after training:")
    for name in ("high", "hint", "block", "random", "low"):
        print(f"    {name:<10}{after[f'hidden_{name}']:6.1%} of the object")
    print(f"\nImages      {report.images}")
    print(f"Run         {report.run} (config, metrics, checkpoints, tensorboard)")
    print(f"Pictures    {', '.join(str(picture) for picture in report.pictures)}")
    print(f"Took        {time.monotonic() - began:.0f} s, seed {parsed.seed}")
    return 0


def _recipes(parsed: argparse.Namespace) -> int:
    from attmask.recipe import read_recipe, recipes

    for name in recipes():
        about = read_recipe(name).about
        figures = about.paper.figures if about.paper else {}
        shown = ", ".join(f"{m} {figures[m]}" for m in ("knn", "linear") if m in figures)
        cost = f"γ {about.time_factor:.2f}" if about.time_factor else ""
        print(f"{name:<24}{cost:<8}{about.summary}{f' ({shown})' if shown else ''}")
    return 0


def _config(parsed: argparse.Namespace) -> int:
    from attmask.api import configure
    from attmask.assign import describe
    from attmask.recipe import read_recipe

    for line in describe(configure(parsed.name, parsed.overrides)):
        paper = f" (paper: {line.paper})" if line.paper else ""
        print(f"{f'{line.key}={line.value}':<48} {line.meaning}{paper}")
    ablations = read_recipe(parsed.name).about.ablations
    if ablations:
        print("\nablations of the paper, as overrides:")
    for ablation in ablations:
        result = ", ".join(f"{measure} {value}" for measure, value in ablation.result.items())
        print(f"  {' '.join(ablation.overrides):<60} {ablation.note}: {result}")
    return 0
