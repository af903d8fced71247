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
        description="Look at images before hours of training: sizes, kinds, classes, unreadable "
        "files, copies, held-out pictures that are in train; then advise what to run, and time "
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
        help="look at no more than these, evenly spread (default: 20000)",
    )
    parser.add_argument("--recipe", help="advise on this recipe (default: one that fits)")
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
