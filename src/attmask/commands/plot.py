"""attmask plot: draw the curves of runs."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "plot",
        help="draw the curves of runs",
        description="Draw losses, health, quality, accuracy and schedules of one or several runs. "
        "Runs that differ only in their seed become a mean with a band from the lowest to the "
        "highest. With several runs, print how many epochs each needs to reach the final accuracy "
        "of the baseline.",
    )
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="folder of a run")
    parser.add_argument(
        "--out", metavar="FILE", type=Path, required=True, help="file to write: .png, .svg or .pdf"
    )
    parser.add_argument(
        "--metric",
        metavar="KEY",
        action="append",
        help="metric to draw, e.g. knn.top1; may be repeated (default: the most important ones)",
    )
    parser.add_argument(
        "--across",
        choices=["epoch", "hours", "step"],
        default="epoch",
        help="what the horizontal axis counts (default: epoch)",
    )
    parser.add_argument(
        "--baseline",
        metavar="RUN",
        help="run that the others are compared with (default: the first)",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    from attmask.curves.plot import plot_runs

    plotted = plot_runs(
        parsed.runs,
        parsed.out,
        metrics=parsed.metric,
        across=parsed.across,
        baseline=parsed.baseline,
    )
    for line in (*(each.sentence for each in plotted.savings), *plotted.notes):
        print(line)
    print(plotted.file)
    return 0
