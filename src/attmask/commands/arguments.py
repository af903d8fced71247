"""Arguments that several commands share."""

import argparse
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from attmask.errors import UserError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The subparsers that a command adds itself to."""


def add_overrides(
    parser: argparse.ArgumentParser, example: str = "masking.strategy=hint; see attmask config NAME"
) -> None:
    """Document key=value overrides in the help; `cli.parse` collects them."""
    parser.set_defaults(overrides=[])
    parser.usage = f"{parser.format_usage().removeprefix('usage: ').strip()} [key=value ...]"
    parser.epilog = f"key=value overrides a setting, e.g. {example}"


def add_forward(parser: argparse.ArgumentParser, *, batch: str = "images per forward pass") -> None:
    """Add the options of forward passes through a frozen network."""
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")
    parser.add_argument(
        "--precision",
        choices=["auto", "bf16", "fp16", "fp32"],
        default="fp32",
        help="precision of forward passes (default: fp32)",
    )
    parser.add_argument(
        "--batch-size",
        metavar="N",
        type=at_least(1),
        default=64,
        help=f"{batch} (default: 64)",
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=at_least(0),
        help="data loader workers (default: depends on the CPU cores)",
    )


def add_processes(parser: argparse.ArgumentParser, doing: str = "train") -> None:
    """Add the option for several processes on this machine."""
    parser.add_argument(
        "--processes",
        metavar="N",
        type=at_least(1),
        default=1,
        help=f"processes on this machine that {doing} together, e.g. one for each GPU (default: 1; "
        "for several machines use torchrun or srun)",
    )


def add_extend(parser: argparse.ArgumentParser) -> None:
    """Add the option for longer training."""
    parser.add_argument(
        "--extend",
        action="store_true",
        help="train an existing run longer, with a larger schedule.epochs=N (or schedule.steps=N, "
        "where a recipe counts steps); from the step reached on, schedules are those of the longer "
        "training",
    )


def launch_processes(parsed: argparse.Namespace) -> int | None:
    """Run this command in several processes if asked to; the exit status, or None if not."""
    if parsed.processes == 1:
        return None
    from attmask.hardware import cores
    from attmask.launch import launch_here, launched

    if launched() > 1:
        raise UserError(
            f"--processes {parsed.processes} was given to a process that torchrun or srun has "
            "launched; use one of the two"
        )
    threads = max(1, cores() // parsed.processes)
    return launch_here(parsed.processes, without_processes(parsed.given), threads=threads)


def without_processes(words: Sequence[str]) -> list[str]:
    """The words of a command line without --processes and its value."""
    kept: list[str] = []
    for before, word in pairwise(["", *words]):
        if before != "--processes" and not word.startswith("--processes"):
            kept.append(word)
    return kept


def at_least(least: int) -> Callable[[str], int]:
    """An argument type for integers of at least `least`."""

    def number(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) < 2**63:
            raise argparse.ArgumentTypeError(f"{text} is not an integer of at least {least}")
        return int(text)

    return number


def images_argument(text: str) -> Path:
    """An argument type for the location of images, which must not be empty."""
    from attmask.data.sources import images_path

    try:
        return images_path(text)
    except UserError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault
