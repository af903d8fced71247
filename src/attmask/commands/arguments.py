"""Arguments that several commands share."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from attmask.errors import UserError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The subparsers to which a command adds its own."""


def add_overrides(
    parser: argparse.ArgumentParser, example: str = "masking.strategy=hint: see attmask config NAME"
) -> None:
    """Document key=value overrides in the help; `cli.parse` collects them."""
    parser.set_defaults(overrides=[])
    parser.usage = f"{parser.format_usage().removeprefix('usage: ').strip()} [key=value ...]"
    parser.epilog = f"key=value changes a setting, e.g. {example}"


def at_least(least: int) -> Callable[[str], int]:
    """An argparse type for integers of at least `least`."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) < 2**63:
            raise argparse.ArgumentTypeError(f"{text} is not an integer of at least {least}")
        return int(text)

    return number


def images_argument(text: str) -> Path:
    """An argparse type for the path of the images; an empty text is an error."""
    from attmask.data.sources import images_path

    try:
        return images_path(text)
    except UserError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault
