"""attmask visualize: draw attention, masks, principal components and neighbours."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands, at_least, images_argument
from attmask.commands.outcome import say
from attmask.wording import either

_KINDS = ("attention", "masks", "figure1", "figure3", "pca", "similarity", "neighbours")
_STRATEGIES = ("block", "random", "high", "hint", "low")


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "visualize",
        help="draw attention, masks, principal components and neighbours",
        description="Draw what networks see in images. CHECKPOINT is a run, one of its step-... "
        "folders, a weights file or timm:NAME; several are drawn side by side. IMAGES is a picture "
        "or anything that pretrain reads.",
    )
    parser.add_argument(
        "checkpoints", metavar="CHECKPOINT", nargs="+", help="network, as for evaluate"
    )
    parser.add_argument("images", metavar="IMAGES", type=images_argument, help="images")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="folder to write to")
    parser.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        choices=_KINDS,
        help="kind of picture, may be given several times (default: attention)",
    )
    parser.add_argument(
        "--animate",
        action="store_true",
        help="draw all checkpoints of a run as one animated WebP (attention or pca)",
    )
    parser.add_argument(
        "--format", choices=["png", "svg", "pdf"], default="png", help="of sheets (default: png)"
    )
    parser.add_argument(
        "--indices", metavar="I,J,...", type=_integers, help="images to show, counted from 0"
    )
    parser.add_argument(
        "--count",
        metavar="N",
        type=at_least(1),
        default=8,
        help="show N evenly spread images (default: 8)",
    )
    parser.add_argument(
        "--max-rows", metavar="N", type=at_least(1), default=8, help="rows of a page (default: 8)"
    )
    parser.add_argument("--split", choices=["train", "val", "test"], help="only this split")
    parser.add_argument(
        "--image-size", metavar="PIXELS", type=at_least(1), help="default: the network's own"
    )
    parser.add_argument(
        "--crop",
        choices=["center", "whole"],
        default="center",
        help="show the centre as a square, or the whole image in its shape (default: center)",
    )
    parser.add_argument(
        "--layer", metavar="N", type=int, help="block, counted from 1 (default: as in masking)"
    )
    parser.add_argument(
        "--strategies",
        metavar="A,B,...",
        type=_strategies,
        help="of masks: block, random, high, hint, low (default: block,random,high,hint)",
    )
    parser.add_argument(
        "--ratios", metavar="R,S,...", type=_numbers, help="of masks (default: 0.1,0.3,0.5)"
    )
    parser.add_argument(
        "--foreground", action="store_true", help="pca: colour the foreground alone"
    )
    parser.add_argument(
        "--patch",
        metavar="ROW,COL",
        type=_patch,
        help="similarity: counted from 0 (default: the most attended patch)",
    )
    parser.add_argument(
        "--neighbours", metavar="N", type=at_least(1), default=5, help="of an image (default: 5)"
    )
    parser.add_argument(
        "--max-images",
        metavar="N",
        type=at_least(1),
        default=2000,
        help="images among which neighbours are searched, evenly spread (default: 2000)",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the masks (default: 0)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Draw, and print the files."""
    from attmask.visualization.masks import RATIOS, SHOWN_STRATEGIES
    from attmask.visualization.visualize import visualize

    files = visualize(
        parsed.checkpoints,
        parsed.images,
        out=parsed.out,
        kinds=parsed.kinds or ["attention"],
        animate=parsed.animate,
        format=parsed.format,
        indices=parsed.indices,
        count=parsed.count,
        max_rows=parsed.max_rows,
        split=parsed.split,
        image_size=parsed.image_size,
        crop=parsed.crop,
        layer=parsed.layer,
        strategies=parsed.strategies or SHOWN_STRATEGIES,
        ratios=parsed.ratios or RATIOS,
        foreground=parsed.foreground,
        patch=parsed.patch,
        neighbours=parsed.neighbours,
        max_images=parsed.max_images,
        seed=parsed.seed,
        device=parsed.device,
    )
    for file in files:
        say(f"wrote {file}")
    return 0


def _strategies(text: str) -> list[str]:
    names = [part.strip() for part in text.split(",")]
    wrong = [name for name in names if name not in _STRATEGIES]
    if wrong:
        raise argparse.ArgumentTypeError(
            f"{wrong[0] or text} is no strategy; use {either(_STRATEGIES)}"
        )
    return names


def _integers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text} is not a list such as 0,5,9") from fault


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as fault:
        raise argparse.ArgumentTypeError(f"{text} is not a list such as 0.1,0.3") from fault


def _patch(text: str) -> tuple[int, int]:
    numbers = _integers(text)
    if len(numbers) != 2:
        raise argparse.ArgumentTypeError(f"{text} is not a row and a column such as 3,7")
    return numbers[0], numbers[1]
