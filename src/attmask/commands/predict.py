"""attmask predict: classify images with a fine-tuned network."""

import argparse
import csv
import sys
from pathlib import Path

from attmask.commands.arguments import Commands, add_forward, at_least, images_argument
from attmask.errors import UserError


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "predict",
        help="classify images with a fine-tuned network",
        description="Classify images with a fine-tuned network, one line of CSV per image: its "
        "name, the most probable class and its probability, and its label if it has one. An image "
        "that cannot be read has a line without a class. With a multi-label classifier, all "
        "classes from --threshold on are named, joined by |.",
    )
    parser.add_argument("checkpoint", metavar="RUN", help="fine-tuned run, or one of its step-...")
    parser.add_argument(
        "images",
        metavar="IMAGES",
        type=images_argument,
        help="a picture, or any images that pretrain reads",
    )
    parser.add_argument(
        "--out", metavar="FILE.csv", type=Path, help="file to write (default: print)"
    )
    parser.add_argument(
        "--top", metavar="N", type=at_least(1), help="name the N most probable classes (default: 1)"
    )
    parser.add_argument(
        "--threshold",
        metavar="P",
        type=float,
        help="probability from which on a multi-label classifier names a class (default: 0.5)",
    )
    parser.add_argument(
        "--all", action="store_true", help="add a column with the probability of each class"
    )
    parser.add_argument(
        "--split", choices=["train", "val", "test"], help="only this split (default: all)"
    )
    parser.add_argument(
        "--classifier",
        metavar="FILE",
        type=Path,
        help="classifier that the task linear has written, for a network that was not fine-tuned",
    )
    add_forward(parser)
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and write or print its results."""
    from attmask import atomic
    from attmask.api import predict
    from attmask.commands.outcome import say
    from attmask.evaluation.reporting.predictions import lines
    from attmask.launch import launched_rank
    from attmask.wording import counted

    out: Path | None = parsed.out
    if out is not None and (out.suffix.lower() != ".csv" or out.is_dir()):
        raise UserError(f"--out {out} is not the name of a .csv file; use such as predictions.csv")
    predictions = predict(
        parsed.checkpoint,
        parsed.images,
        classifier=parsed.classifier,
        split=parsed.split,
        top=parsed.top,
        threshold=parsed.threshold,
        device=parsed.device,
        precision=parsed.precision,
        batch_size=parsed.batch_size,
        workers=parsed.workers,
    )
    table = lines(predictions, every_class=parsed.all)
    if launched_rank() != 0:
        for _ in table:  # this process computes its share, the main one writes
            pass
        return 0
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows(table)
        return 0
    try:
        with atomic.file(out) as part, part.open("w", encoding="utf-8", newline="") as opened:
            csv.writer(opened, lineterminator="\n").writerows(table)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot write {out}: {why}; choose another --out") from fault
    say(f"wrote {counted(len(predictions), 'prediction')} to {out}")
    return 0
