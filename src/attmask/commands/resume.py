"""attmask resume: go on with a run, with its own settings and images."""

import argparse
from pathlib import Path

from attmask.commands.arguments import Commands, add_overrides
from attmask.commands.outcome import tell


def add(commands: Commands) -> None:
    """Its arguments."""
    parser = commands.add_parser(
        "resume",
        help="go on with a run, with its own settings and images",
        description="Go on with a run that was stopped, with its own settings and images; "
        "key=value may change how it is computed, not what.",
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="folder of the run")
    parser.add_argument("--data", metavar="DATA", type=Path, help="where the images are now")
    add_overrides(parser, "train.workers=2: see attmask config NAME")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Call and print."""
    from attmask.api import resume

    outcome = resume(parsed.folder, data=parsed.data, overrides=parsed.overrides)
    if outcome.was_finished:
        print(f"attmask: {outcome.run} was finished already, {outcome.steps} steps")
        return 0
    return tell(outcome)
