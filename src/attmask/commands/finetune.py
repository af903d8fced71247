"""attmask finetune: train a backbone and a head on annotated images, or resume that."""

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
from attmask.commands.outcome import say, tell


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "finetune",
        help="fine-tune a checkpoint on annotated images; the same command resumes",
        description="Fine-tune the backbone of a checkpoint together with a head. The recipe "
        "decides what is learned. own, cifar10, ...: classes of images, which are sub-folders of "
        "train/, val/ and test/ or without splits, a list with labels, shards, arrays, or the "
        "official files of CIFAR and Flowers-102. segment-own, segment-ade20k, ...: classes of "
        "pixels, in masks beside the images. detect-own, detect-coco, ...: boxes and masks of "
        "objects, annotated in COCO's format. The recipes own, segment-own and detect-own hold out "
        "a part of the training images where there is no val, and end when there is nothing left "
        "to gain. If RUN has a checkpoint with the same settings, training resumes.",
    )
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", help="run, weights file or timm:NAME to start from"
    )
    parser.add_argument("data", metavar="DATA", type=images_argument, help="annotated images")
    parser.add_argument(
        "--recipe", default="own", help="name (see attmask recipes) or YAML file (default: own)"
    )
    parser.add_argument(
        "--out",
        metavar="RUN",
        type=Path,
        help="output folder (default: runs/DATA-RECIPE-CHECKPOINT, with the overrides in its name)",
    )
    add_extend(parser)
    add_processes(parser)
    add_overrides(parser, "schedule.epochs=20; see attmask config NAME")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    if (status := launch_processes(parsed)) is not None:
        return status
    from attmask.api import default_finetune_out, finetune

    out = parsed.out or default_finetune_out(
        parsed.checkpoint, parsed.data, parsed.recipe, parsed.overrides
    )
    done = finetune(
        parsed.checkpoint,
        parsed.data,
        recipe=parsed.recipe,
        out=out,
        overrides=parsed.overrides,
        extend=parsed.extend,
    )
    if done.results is not None:
        for line in done.results.lines():
            say(line)
    return tell(done.outcome, "the network and all results")
