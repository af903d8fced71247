"""attmask pretrain: pre-train on images; the same command resumes."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands, add_overrides, images_argument
from attmask.commands.outcome import tell


def add(commands: Commands) -> None:
    """Its arguments."""
    parser = commands.add_parser(
        "pretrain",
        help="pre-train on a folder of images; the same command resumes",
        description="Pre-train on a folder of images: one sub-folder a class, flat without labels, "
        "or train/ beside val/ and test/, which are held out. If RUN holds a checkpoint of the "
        "same settings, training goes on.",
    )
    parser.add_argument("data", metavar="DATA", type=images_argument, help="folder of images")
    parser.add_argument(
        "--recipe",
        help="name (see attmask recipes) or YAML file; by default cpu, or small on a GPU",
    )
    parser.add_argument(
        "--out",
        metavar="RUN",
        type=Path,
        help="folder of the run (default: runs/DATA-RECIPE and the settings that were changed)",
    )
    add_overrides(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Call and print."""
    from attmask.api import default_out, default_recipe, pretrain

    recipe = parsed.recipe or default_recipe()
    out = parsed.out or default_out(parsed.data, recipe, parsed.overrides)
    outcome = pretrain(parsed.data, recipe=recipe, out=out, overrides=parsed.overrides)
    return tell(outcome)
