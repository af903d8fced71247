"""attmask pretrain: pre-train on images, or resume a run that was stopped."""

import argparse
from pathlib import Path

from attmask.commands.arguments import (
    Commands,
    add_extend,
    add_overrides,
    add_processes,
    images_argument,
    launch_processes,
)
from attmask.commands.outcome import tell


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "pretrain",
        help="pre-train on your images; the same command resumes",
        description="Pre-train on images without using labels. DATA is a folder (flat, one "
        "sub-folder per class, or train/ with val/ or test/, which are held out), a list of paths, "
        "tar shards, arrays or a Hugging Face dataset on disk. If RUN has a checkpoint with the "
        "same settings, training resumes.",
    )
    parser.add_argument("data", metavar="DATA", type=images_argument, help="images")
    parser.add_argument(
        "--recipe",
        help="name (see attmask recipes) or YAML file (default: small with a GPU, else cpu)",
    )
    parser.add_argument(
        "--out",
        metavar="RUN",
        type=Path,
        help="output folder (default: runs/DATA-RECIPE, with the overrides in its name)",
    )
    parser.add_argument(
        "--from",
        dest="resume_from",
        metavar="FILE",
        type=Path,
        help="full checkpoint of AttMask, iBOT or DINO (checkpoint.pth with student, teacher, "
        "optimizer and epoch) that a new run goes on from",
    )
    add_extend(parser)
    add_processes(parser)
    add_overrides(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    if (status := launch_processes(parsed)) is not None:
        return status
    from attmask.api import default_out, default_recipe, pretrain

    recipe = parsed.recipe or default_recipe()
    out = parsed.out or default_out(parsed.data, recipe, parsed.overrides)
    outcome = pretrain(
        parsed.data,
        recipe=recipe,
        out=out,
        overrides=parsed.overrides,
        extend=parsed.extend,
        resume_from=parsed.resume_from,
    )
    return tell(outcome)
