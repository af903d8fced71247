"""The last line and the exit status of a run."""

from typing import TYPE_CHECKING

from attmask.launch import launched_rank

if TYPE_CHECKING:
    from attmask.loop import Outcome

INTERRUPTED = 130
"""The status of a command that Ctrl-C has ended."""


def tell(outcome: "Outcome", made: str = "the backbone and all metrics") -> int:
    """Print how a run ended and return the exit status.

    A run that was stopped and saved has that of its signal, as a shell counts: 143 for SIGTERM.
    """
    if not outcome.finished:
        say(
            f"stopped and saved at step {outcome.steps} of {outcome.total_steps}; "
            "run the same command to resume"
        )
        return stopped_status(outcome)
    steps = f"{outcome.steps} steps"
    if outcome.ended_early:
        steps = f"{outcome.steps} of {outcome.total_steps} steps"
    say(f"done, {steps}; {made} are in {outcome.run}")
    if outcome.said:
        say(outcome.said)
    return 0


def stopped_status(outcome: "Outcome") -> int:
    """The exit status of a run that a signal has stopped."""
    return 128 + (outcome.stopped_by or INTERRUPTED - 128)


def say(line: str) -> None:
    """Print a line; of several processes, only the main one does."""
    if launched_rank() == 0:
        print(f"attmask: {line}")
