"""attmask report: write one HTML page about runs."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands, images_argument
from attmask.commands.outcome import say


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "report",
        help="write one HTML page about runs: verdict, curves, masks, features, results",
        description="Write one self-contained HTML page about one or several runs: a verdict with "
        "its proofs, curves, a studio of masks, similar patches, nearest images, a map of "
        "embeddings, all evaluations and what was run. It opens from disk without a network. A "
        "training writes RUN/report.html by itself every few epochs (monitor.report_every_epochs).",
    )
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="folder of a run")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, help="page to write (default: report.html in the run)"
    )
    parser.add_argument(
        "--data", metavar="DATA", type=images_argument, help="images, if they have moved"
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        help="run that the others are compared with (default: the first)",
    )
    parser.add_argument("--title", help="title of the page (default: the names of the runs)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, cuda:1, ... (default: auto)")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Write the page, and print where it is."""
    from attmask.api.showing import report

    page = report(
        parsed.runs,
        out=parsed.out,
        data=parsed.data,
        baseline=parsed.baseline,
        title=parsed.title,
        device=parsed.device,
    )
    say(f"wrote {page}")
    return 0
