"""The last line and the exit status of a run."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attmask.train import Outcome

INTERRUPTED = 130


def tell(outcome: "Outcome") -> int:
    """Print how a run ended and return the exit status."""
    if not outcome.finished:
        print(
            f"attmask: stopped and saved at step {outcome.steps} of {outcome.total_steps}; "
            "run the same command to resume"
        )
        return INTERRUPTED
    print(
        f"attmask: done, {outcome.steps} steps; the backbone and all metrics are in {outcome.run}"
    )
    return 0
