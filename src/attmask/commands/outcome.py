"""How a run ended, in a line and an exit status."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attmask.train import Outcome

INTERRUPTED = 130


def tell(outcome: "Outcome") -> int:
    """Say how a run ended."""
    if not outcome.finished:
        print(
            f"attmask: stopped and saved at step {outcome.steps} of {outcome.total_steps}; "
            "the same command goes on from there"
        )
        return INTERRUPTED
    print(
        f"attmask: done, {outcome.steps} steps; the backbone and all numbers are in {outcome.run}"
    )
    return 0
