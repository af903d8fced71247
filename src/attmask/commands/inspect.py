"""attmask inspect: audit images before training."""

import argparse
import json
import shutil

from attmask.commands.arguments import Commands, images_argument


def add(commands: Commands) -> None:
    """Its arguments."""
    parser = commands.add_parser(
        "inspect",
        help="audit images before training: faults, copies, sizes, and what to run",
        description="Inspect images before training: sizes, formats, classes, unreadable files, "
        "copies, held-out images that are also in train; then recommend settings, and time "
        "some steps of it on this machine.",
    )
    parser.add_argument(
        "data", metavar="DATA", type=images_argument, help="images, as for pretrain"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--max-images",
        metavar="N",
        type=int,
        default=20_000,
        help="largest number of images to examine, evenly spread (default: 20000)",
    )
    parser.add_argument("--recipe", help="recipe to check (default: a recommended one)")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Call and print."""
    from attmask.api import inspect
    from attmask.audit.table import render

    audit = inspect(parsed.data, recipe=parsed.recipe, max_images=parsed.max_images)
    if parsed.json:
        print(json.dumps(audit.to_dict(), indent=2))
    else:
        print(render(audit, width=min(100, shutil.get_terminal_size().columns)), end="")
    return 0
