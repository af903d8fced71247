"""One HTML file about one or several runs, written atomically."""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from attmask import atomic
from attmask.curves.run_curves import RunCurves, read_all
from attmask.data.images import Images
from attmask.errors import UserError
from attmask.html_report.about import about_of, image_facts
from attmask.html_report.comparison import comparison_of
from attmask.html_report.evaluations import cards_of, evaluations
from attmask.html_report.page import render_page
from attmask.html_report.pictures import NOTHING, Reading, pictures_of
from attmask.html_report.run_images import data_of, images_of
from attmask.html_report.series import metrics_of, series_of
from attmask.html_report.timeline import timeline_of
from attmask.html_report.verdict import verdict, warnings
from attmask.run_baselines import read_baselines
from attmask.run_config import RunConfig
from attmask.run_status import read_status
from attmask.software import software
from attmask.wording import counted

MOST_BYTES = 10_000_000
"""The largest page: what a mail takes."""
_BYTES_OF_CURVES = 350_000  # of a run, with its map
_BYTES_OF_IMAGES = 1_500_000  # which all runs share that have the same
_MOST_RUNS = 24

log = logging.getLogger(__name__)


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    data: Path | None = None,
    baseline: str | None = None,
    title: str | None = None,
    device: str = "auto",
    check: Callable[[], None] = lambda: None,
    looks_back: bool = True,
) -> Path:
    """Write the report; what needs images that are not at hand is left out with a warning.

    `data` is where the images are, if they have moved. `check` is called between two batches, and
    may raise to end the report before anything is written. With `looks_back`, checkpoints of
    earlier epochs are read too, if there are any that were not looked at.
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{out} is not the name of a page; use one that ends in .html")
    if not folders:
        raise UserError("no run was given; give at least one folder of a run")
    if len(folders) > _MOST_RUNS:
        raise UserError(f"{len(folders)} runs were given, {_MOST_RUNS} fit on a page; give fewer")
    page = render_page(
        payload_of(
            read_all(folders),
            data=data,
            baseline=baseline,
            title=title,
            command=_command(folders, out, data, baseline),
            reading_of=partial(Reading.of, device=device, check=check, looks_back=looks_back),
        )
    )
    if len(page) > MOST_BYTES:
        log.warning("the report has %.1f MB, more than intended; give fewer runs", len(page) / 1e6)
    try:
        atomic.make_folder(out.parent)
        atomic.write(out, page)
    except OSError as fault:
        raise UserError(
            f"cannot write {out}: {fault.strerror or fault}; {atomic.what_to_do(fault)}"
        ) from fault
    return out


def payload_of(
    runs: Sequence[RunCurves],
    *,
    data: Path | None,
    baseline: str | None,
    title: str | None,
    command: str,
    reading_of: Callable[[RunConfig], Reading],
) -> dict[str, Any]:
    """Everything that the page shows."""
    comparison = comparison_of(runs, baseline)  # first: it may refuse the baseline
    room = (MOST_BYTES - _BYTES_OF_IMAGES) / len(runs) - _BYTES_OF_CURVES
    names = " and ".join(run.name for run in runs[:2])
    return {
        "version": 1,
        "made": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "attmask": software().get("attmask", ""),
        "title": title or (names if len(runs) <= 2 else f"{counted(len(runs), 'run')} compared"),
        "command": command,
        "metrics": metrics_of(list(runs)),
        "runs": [_run(run, data, reading_of(run.config), room) for run in runs],
        "comparison": comparison,
        "evaluations": evaluations({run.name: (run.folder, cards_of(run.folder)) for run in runs}),
    }


def _run(run: RunCurves, data: Path | None, reading: Reading, room: float) -> dict[str, Any]:
    status = read_status(run.folder)
    images, pictures, missing = _with_pictures(run, data, reading, room)
    splits = {} if images is None else {name: len(each) for name, each in images.splits.items()}
    classes = 0 if images is None or images.train.labels is None else len(images.train.classes)
    facts = image_facts(data_of(run, data), splits, classes)
    return {
        "name": run.name,
        "folder": str(run.folder),
        "state": status.state,
        "headline": _headline(run),
        "epochs": run.config.schedule.epochs,
        "steps": status.steps,
        "step": status.step,
        "verdict": verdict(run.records, status, read_baselines(run.folder)),
        "warnings": [*warnings(status), *missing],
        **series_of(run),
        **pictures,
        "timeline": timeline_of(run),
        "about": about_of(run, facts),
    }


def _with_pictures(
    run: RunCurves, data: Path | None, reading: Reading, room: float
) -> tuple[Images | None, dict[str, Any], list[dict[str, Any]]]:
    """The images of a run, its pictures, and a warning for what could not be drawn."""
    images: Images | None = None
    try:
        images = images_of(run, data)
        return images, pictures_of(run.folder, run.config, images, reading, room), []
    except UserError as fault:
        log.warning("%s: %s; the report is made without pictures", run.name, fault)
        text, _, reason = str(fault).partition("; ")
        warning = {
            "level": "unknown",
            "text": f"no pictures: {text}",
            "reason": reason or "the page shows what is left",
        }
        return images, dict(NOTHING), [warning]


def _headline(run: RunCurves) -> str:
    """What is trained, in a few words."""
    config = run.config
    said = [config.ABOUT, f"{config.schedule.epochs} epochs", f"batch of {config.train.batch_size}"]
    masking = getattr(config, "masking", None)
    if masking is not None:
        said.insert(1, f"masking {masking.strategy}")
    return ", ".join(said)


def _command(folders: Sequence[Path], out: Path, data: Path | None, baseline: str | None) -> str:
    words = [*map(str, folders), "--out", str(out)]
    words += ["--data", str(data)] if data else []
    words += ["--baseline", baseline] if baseline else []
    return " ".join(["attmask report", *map(quote, words)])
