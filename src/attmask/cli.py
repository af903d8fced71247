"""The command line: assembles the commands, parses arguments and prints errors in one line."""

import argparse
import difflib
import io
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from attmask import __version__
from attmask.commands import (
    completion,
    config,
    demo,
    embed,
    evaluate,
    export,
    finetune,
    inspect,
    plan,
    plot,
    predict,
    pretrain,
    publish,
    recipes,
    report,
    resume,
    status,
    tasks,
    visualize,
)
from attmask.commands.outcome import INTERRUPTED
from attmask.errors import UserError
from attmask.launch import launched_rank

_COMMANDS = (
    *(demo, pretrain, resume, status, inspect, plan),
    *(evaluate, embed, finetune, predict, visualize, plot, report, export, publish),
    *(tasks, recipes, config),
    completion,
)
_FLAGS = (
    "--help",
    "--version",
    "--verbose",
    "--json",
    "--extend",
    "--all",
    "--norm-gap",
    "--animate",
    "--foreground",
    "--dynamic-size",
    "--backbone-only",
    "--private",
)  # take no value


class Parser(argparse.ArgumentParser):
    """argparse whose errors are one line, suggest the nearest name and exit with status 1."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **settings})

    def error(self, message: str) -> NoReturn:
        """Print the error and which help page to read."""
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
        raise argparse.ArgumentError(None, f"there is no {action.dest} {value}; {advice}")


class _OnlyWithVersion(argparse.Action):
    """--verbose, which `parse` has taken away if --version was given."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{**settings, "nargs": 0, "default": argparse.SUPPRESS})

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        parser.error("--verbose belongs to --version; use attmask --version --verbose")


def build_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="attmask",
        description="Pre-train vision transformers without labels, with attention-guided masking.",
    )
    parser.add_argument("--version", action="version", version=f"attmask {__version__}")
    parser.add_argument(
        "--verbose",
        action=_OnlyWithVersion,
        help="with --version: also show what is installed and the machine, for bug reports",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add(commands)
    return parser


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The parsed command; overrides may stand anywhere, which argparse alone does not allow."""
    parser = build_parser()
    given = sys.argv[1:] if arguments is None else list(arguments)
    if set(given) == {"--version", "--verbose"}:
        return argparse.Namespace(run=_print_environment)
    words, overrides = _without_overrides(given)
    parsed, rest = parser.parse_known_args(words)
    if rest or (overrides and not hasattr(parsed, "overrides")):
        parser.error(f"unknown argument {(rest or overrides)[0]}")
    parsed.overrides, parsed.given = overrides, given
    return parsed


def _without_overrides(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into its words and its overrides.

    A word after an option is the option's value (`--data knn=DIR`), and a word that is an existing
    path is never an override.
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


def _is_assignment(word: str) -> bool:
    """Whether a word is key=value rather than a path that contains an equals sign."""
    key, equals, _ = word.partition("=")
    return bool(equals) and re.fullmatch(r"\w[\w.-]*", key) is not None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; a `UserError` is one line and status 1."""
    _print_anywhere()
    parsed = parse(arguments)
    _show_log()
    run: Callable[[argparse.Namespace], int] = parsed.run
    try:
        return run(parsed)
    except UserError as fault:
        # Of an error that all processes have, one tells.
        if launched_rank() == 0 or not fault.in_all_processes:
            print(f"attmask: {fault}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        if launched_rank() == 0:
            print("attmask: stopped", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _print_environment(parsed: argparse.Namespace) -> int:
    """Print what a bug report should say."""
    from attmask.environment import environment

    for name, value in [("attmask", __version__), *environment()]:
        print(f"{name:<24}{value}")
    return 0


def _print_anywhere() -> None:
    """Print a question mark for characters that the terminal's encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _show_log() -> None:
    """Show the library's log messages as plain lines on stderr.

    Of several processes, those beside the main one show warnings only.
    """
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    if launched_rank() == 0:
        logging.getLogger("attmask").setLevel(logging.INFO)
