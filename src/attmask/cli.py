"""The command line: assembles the commands, parses, and turns errors into one line."""

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
from typing import NoReturn

from attmask import __version__
from attmask.commands import config, demo, evaluate, inspect, pretrain, recipes, resume, tasks
from attmask.commands.outcome import INTERRUPTED
from attmask.errors import UserError

_COMMANDS = (demo, pretrain, resume, inspect, evaluate, tasks, recipes, config)
_FLAGS = ("--help", "--version", "--json")  # the options without a value


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
    for command in _COMMANDS:
        command.add(commands)
    return parser


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


def _is_assignment(word: str) -> bool:
    """Whether a word is key=value and not a path with an equals sign in it."""
    key, equals, _ = word.partition("=")
    return bool(equals) and re.fullmatch(r"\w[\w.-]*", key) is not None


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
