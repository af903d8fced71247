"""attmask embed: write the features of images to one file."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from attmask.commands.arguments import (
    Commands,
    add_forward,
    add_processes,
    at_least,
    images_argument,
    launch_processes,
)
from attmask.commands.outcome import say
from attmask.wording import agree, counted

if TYPE_CHECKING:
    from attmask.embedding.file import EmbeddingFile


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "embed",
        help="write the features of images to a file; the same command resumes",
        description="Write the features of any number of images to one file, with names and "
        "labels. CHECKPOINT is a run, one of its step-... folders, a weights file or timm:NAME; "
        "IMAGES is anything that pretrain reads, with or without labels. If it was interrupted, "
        "the same command goes on where it was.",
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="network, as for evaluate")
    parser.add_argument(
        "images", metavar="IMAGES", type=images_argument, help="images, as for pretrain"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        required=True,
        help=".npy, .parquet or .safetensors; names and labels are columns of a .parquet file, "
        "and in FILE.csv of the others",
    )
    parser.add_argument(
        "--tokens",
        choices=["cls", "gap", "cls+gap", "patches"],
        default="cls",
        help="[CLS], the mean of the patches (gap), both, or all patches as a grid (default: cls)",
    )
    parser.add_argument(
        "--blocks",
        metavar="N",
        type=at_least(1),
        default=1,
        help="number of last blocks, whose tokens are concatenated (default: 1)",
    )
    parser.add_argument(
        "--norm-gap",
        action="store_true",
        help="apply the final norm to the patches before their mean (default: as in the paper, no)",
    )
    parser.add_argument(
        "--size",
        metavar="PIXELS",
        type=at_least(1),
        help="side of the centre crop (default: the network's own)",
    )
    parser.add_argument(
        "--split",
        choices=["all", "train", "val", "test"],
        default="all",
        help="images to embed, if there are splits (default: all)",
    )
    parser.add_argument(
        "--dtype",
        choices=["float32", "float16", "bfloat16"],
        default="float32",
        help="number format in the file (default: float32; bfloat16 only in .safetensors)",
    )
    add_forward(parser)
    add_processes(parser, "embed")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    if (status := launch_processes(parsed)) is not None:
        return status
    from attmask.api import write_embeddings

    file = write_embeddings(
        parsed.checkpoint,
        parsed.images,
        out=parsed.out,
        tokens=parsed.tokens,
        blocks=parsed.blocks,
        norm_gap=parsed.norm_gap,
        image_size=parsed.size,
        split=parsed.split,
        dtype=parsed.dtype,
        device=parsed.device,
        precision=parsed.precision,
        batch_size=parsed.batch_size,
        workers=parsed.workers,
    )
    if not file.finished:
        say(
            f"stopped after {file.done:,} of {counted(file.images, 'image')}; run the same command "
            "to go on"
        )
        return 128 + file.stopped_by
    _tell(file, parsed.dtype)
    return 0


def _tell(file: "EmbeddingFile", dtype: str) -> None:
    """Say what is in which file."""
    shape = " x ".join(f"{length}" for length in file.shape)
    where = "in its columns" if file.names is None else f"in {file.names}"
    began = "was written before and has" if file.was_there else "has"
    say(f"{file.path} {began} the features of {counted(file.shape[0], 'image')}: {shape}, {dtype}")
    say(f"names and labels are {where}")
    if file.unreadable:
        be = agree(file.unreadable, "image cannot be read and is", "images cannot be read and are")
        say(f"{file.unreadable:,} {be} left out; {file.unreadable_list} has the reasons")
