"""attmask resume: resume a run with its own settings and images."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands, add_overrides
from attmask.commands.outcome import tell


def add(commands: Commands) -> None:
    """Its arguments."""
    parser = commands.add_parser(
        "resume",
        help="resume a run with its own settings and images",
        description="Go on with a run that was stopped, with its own settings and images; "
        "key=value may change operational settings only.",
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="folder of the run")
    parser.add_argument(
        "--data", metavar="DATA", type=Path, help="new path of the images, if they were moved"
    )
    add_overrides(parser, "train.workers=2: see attmask config NAME")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Call and print."""
    from attmask.api import resume

    outcome = resume(parsed.folder, data=parsed.data, overrides=parsed.overrides)
    if outcome.was_finished:
        print(f"attmask: {outcome.run} is already finished, {outcome.steps} steps")
        return 0
    return tell(outcome)
