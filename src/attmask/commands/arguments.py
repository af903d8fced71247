"""What the arguments of several commands have in common."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from attmask.errors import UserError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""Where a command adds itself."""


def add_overrides(
    parser: argparse.ArgumentParser, example: str = "masking.strategy=hint: see attmask config NAME"
) -> None:
    """Say that key=value is taken, between options too; `cli.parse` collects them."""
    parser.set_defaults(overrides=[])
    parser.usage = f"{parser.format_usage().removeprefix('usage: ').strip()} [key=value ...]"
    parser.epilog = f"key=value changes a setting, e.g. {example}"


def at_least(least: int) -> Callable[[str], int]:
    """Whole numbers from `least` on, and a line that says so."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) < 2**63:
            raise argparse.ArgumentTypeError(f"{text} is no whole number of at least {least}")
        return int(text)

    return number


def images_argument(text: str) -> Path:
    """Where the images are; an empty text is refused."""
    from attmask.data.sources import images_path

    try:
        return images_path(text)
    except UserError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault
