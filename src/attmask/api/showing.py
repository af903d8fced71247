"""What was trained, to look at: pictures of networks, curves of runs, one page about them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from attmask.curves.plot import Plotted, plot_runs
from attmask.data.sources import images_path
from attmask.html_report.on_the_way import REPORT
from attmask.html_report.report import write_report
from attmask.visualization.visualize import visualize

__all__ = ["plot", "report", "visualize"]


def report(
    runs: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    data: str | Path | None = None,
    baseline: str | None = None,
    title: str | None = None,
    device: str = "auto",
) -> Path:
    """Write one self-contained HTML page about one or several runs; returns the file.

    By default it is report.html in the folder of a single run, or here. `data` is where the images
    are, if they have moved; `baseline` is the run that the others are compared with.
    """
    folders = [Path(f) for f in ([runs] if isinstance(runs, str | Path) else runs)]
    page = (folders[0] if len(folders) == 1 else Path()) / REPORT if out is None else Path(out)
    return write_report(
        folders,
        page,
        data=None if data is None else images_path(data),
        baseline=baseline,
        title=title,
        device=device,
    )


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
