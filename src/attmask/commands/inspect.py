"""attmask inspect: check images before training."""

import argparse
import json
import shutil

from attmask.commands.arguments import Commands, images_argument


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "inspect",
        help="check images before training and suggest a command",
        description="Check images before training: sizes, formats, classes, unreadable files, "
        "duplicates, and held-out images that are also in train. Then suggest settings, and "
        "estimate time and memory from a few training steps on this machine.",
    )
    parser.add_argument(
        "data", metavar="DATA", type=images_argument, help="images, as for pretrain"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--max-images",
        metavar="N",
        type=int,
        default=20_000,
        help="check at most N images, evenly spread (default: 20000)",
    )
    parser.add_argument(
        "--recipe", help="recipe to check (default: one that fits the data and the machine)"
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.api import inspect
    from attmask.audit.table import render

    audit = inspect(parsed.data, recipe=parsed.recipe, max_images=parsed.max_images)
    if parsed.json:
        print(json.dumps(audit.to_dict(), indent=2))
    else:
        print(render(audit, width=min(100, shutil.get_terminal_size().columns)), end="")
    return 0
