"""attmask predict: classify or segment images, or detect objects, with a fine-tuned network."""

import argparse
import csv
import sys
from pathlib import Path

from attmask.commands.arguments import (
    Commands,
    add_forward,
    add_processes,
    at_least,
    images_argument,
    launch_processes,
)
from attmask.errors import UserError


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "predict",
        help="classify or segment images, or detect objects, with a fine-tuned network",
        description="Predict what images show, with a fine-tuned network. A classifier gives one "
        "line of CSV per image: its name, the most probable class and its probability, and its "
        "label if it has one; the line of an image that cannot be read has no class. A segmenter "
        "writes masks/NAME.png and classes.csv to the folder --out, a detector detections.json in "
        "COCO's format; both add overlays/NAME.jpg to look at.",
    )
    parser.add_argument("checkpoint", metavar="RUN", help="fine-tuned run, or one of its step-...")
    parser.add_argument(
        "images",
        metavar="IMAGES",
        type=images_argument,
        help="a picture, or any images that pretrain reads",
    )
    parser.add_argument(
        "--out",
        metavar="FILE.csv|DIR",
        type=Path,
        help="file for the classes (default: print them), or folder for masks or detections",
    )
    parser.add_argument(
        "--split", choices=["train", "val", "test"], help="only this split (default: all)"
    )
    parser.add_argument(
        "--threshold",
        metavar="P",
        type=float,
        help="a multi-label classifier names all classes with at least this probability, joined "
        "by | (default: 0.5); a detector writes and draws all detections with at least this score "
        "(default: write from 0.05 on, draw from 0.5 on)",
    )
    add_processes(parser, "predict")
    add_forward(parser, batch="images per forward pass of a classifier")
    parser.set_defaults(run=run, batch_size=None)
    classes = parser.add_argument_group("for classifiers only")
    classes.add_argument(
        "--top", metavar="N", type=at_least(1), help="name the N most probable classes (default: 1)"
    )
    classes.add_argument(
        "--all", action="store_true", help="add a column with the probability of each class"
    )
    classes.add_argument(
        "--classifier",
        metavar="FILE",
        type=Path,
        help="classifier that the task linear has written, for a network that was not fine-tuned",
    )
    dense = parser.add_argument_group("for segmenters and detectors only")
    dense.add_argument(
        "--overlays",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="write pictures to look at (default: yes)",
    )


def run(parsed: argparse.Namespace) -> int:
    """Run the command and write or print its results."""
    if (status := launch_processes(parsed)) is not None:
        return status
    from attmask.evaluation.loading import kind_of

    kind = kind_of(parsed.checkpoint)
    if kind in ("segment", "detect"):
        return _write_folder(parsed, kind)
    return _write_table(parsed)


def _write_folder(parsed: argparse.Namespace, kind: str) -> int:
    """Segment the images or detect objects in them."""
    from attmask.api import detect, segment
    from attmask.commands.outcome import say
    from attmask.launch import launched_rank
    from attmask.wording import counted

    does = "segments images" if kind == "segment" else "detects objects"
    given = {
        "--top": parsed.top,
        "--all": parsed.all or None,
        "--classifier": parsed.classifier,
        "--batch-size": parsed.batch_size,
    }
    if kind == "segment":
        given["--threshold"] = parsed.threshold
    for option, value in given.items():
        if value is not None:
            raise UserError(f"{option} was given, but {parsed.checkpoint} {does}; leave it out")
    if parsed.out is None:
        raise UserError(f"{parsed.checkpoint} {does}, which needs a folder; add --out DIR")
    options = {
        "out": parsed.out,
        "split": parsed.split,
        "overlays": parsed.overlays,
        "device": parsed.device,
        "precision": parsed.precision,
        "workers": parsed.workers,
    }
    if kind == "segment":
        written = segment(parsed.checkpoint, parsed.images, **options)
    else:
        written = detect(parsed.checkpoint, parsed.images, threshold=parsed.threshold, **options)
    if launched_rank() == 0:
        what = "masks" if kind == "segment" else "detections"
        say(f"wrote the {what} of {counted(written.images, 'image')} to {parsed.out}")
    return 0


def _write_table(parsed: argparse.Namespace) -> int:
    """Classify the images."""
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
        workers=parsed.workers,
        **({} if parsed.batch_size is None else {"batch_size": parsed.batch_size}),
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
