"""attmask resume: resume a run with its own settings and images."""

import argparse
from pathlib import Path

from attmask.commands.arguments import (
    Commands,
    add_extend,
    add_overrides,
    add_processes,
    launch_processes,
)
from attmask.commands.outcome import say, tell


def add(commands: Commands) -> None:
    """Add the command and its arguments."""
    parser = commands.add_parser(
        "resume",
        help="resume a run with its own settings and images",
        description="Resume a run from its last checkpoint, with its own settings and images. "
        "Overrides may change settings that do not affect the result, such as train.workers, and "
        "with --extend the number of epochs.",
    )
    parser.add_argument("folder", metavar="RUN", type=Path, help="folder of the run")
    parser.add_argument(
        "--data", metavar="DATA", type=Path, help="new location of the images, if they have moved"
    )
    add_extend(parser)
    add_processes(parser)
    add_overrides(parser, "train.workers=2; see attmask config NAME")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace) -> int:
    """Run the command and print its results."""
    if (status := launch_processes(parsed)) is not None:
        return status
    from attmask.api import resume

    outcome = resume(
        parsed.folder, data=parsed.data, overrides=parsed.overrides, extend=parsed.extend
    )
    results = _results(outcome.run) if outcome.finished else []
    for line in results:
        say(line)
    if outcome.was_finished:
        say(f"{outcome.run} is already finished, {outcome.steps} steps")
        return 0
    return tell(outcome, "the network and all results") if results else tell(outcome)


def _results(run: Path) -> list[str]:
    """The lines of the results that a fine-tuning run has."""
    from attmask.tuning.results import Results

    found = Results.read(run)
    return [] if found is None else found.lines()
