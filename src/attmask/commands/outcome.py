"""The message and the exit status at the end of a run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attmask.train import Outcome

INTERRUPTED = 130


def tell(outcome: "Outcome") -> int:
    """Print how the run ended and return the exit status."""
    if not outcome.finished:
        print(
            f"attmask: stopped and saved at step {outcome.steps} of {outcome.total_steps}; "
            "the same command resumes from there"
        )
        return INTERRUPTED
    print(
        f"attmask: done, {outcome.steps} steps; the backbone and all numbers are in {outcome.run}"
    )
    return 0
