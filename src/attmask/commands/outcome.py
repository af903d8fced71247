"""The last line and the exit status of a run."""

from typing import TYPE_CHECKING

from attmask.launch import launched_rank

if TYPE_CHECKING:
    from attmask.train import Outcome

INTERRUPTED = 130


def tell(outcome: "Outcome") -> int:
    """Print how a run ended and return the exit status."""
    if not outcome.finished:
        say(
            f"stopped and saved at step {outcome.steps} of {outcome.total_steps}; "
            "run the same command to resume"
        )
        return INTERRUPTED
    say(f"done, {outcome.steps} steps; the backbone and all metrics are in {outcome.run}")
    return 0


def say(line: str) -> None:
    """Print a line; of several processes, only the main one does."""
    if launched_rank() == 0:
        print(f"attmask: {line}")
