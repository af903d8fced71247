"""What was trained, to look at: pictures of networks, curves of runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from attmask.curves.plot import Plotted, plot_runs
from attmask.visualization.visualize import visualize

__all__ = ["plot", "visualize"]


def plot(
    runs: str | Path | Sequence[str | Path],
    *,
    out: str | Path,
    metrics: Sequence[str] | None = None,
    across: Literal["epoch", "hours", "step"] = "epoch",
    baseline: str | None = None,
) -> Plotted:
    """Draw the curves of runs to a .png, .svg or .pdf file, one panel for each metric.

    Runs that differ in their seed alone are drawn as a mean with a band. `.savings` of the result
    says how much sooner each reaches the final accuracy of the `baseline`, by default the first.
    """
    folders = [runs] if isinstance(runs, str | Path) else runs
    return plot_runs(
        [Path(folder) for folder in folders],
        Path(out),
        metrics=metrics,
        across=across,
        baseline=baseline,
    )
