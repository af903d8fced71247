"""Metrics of a run on disk, and its progress on the screen."""

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console

from attmask import atomic, distributed
from attmask.errors import UserError
from attmask.metric import Metric, values_by_key
from attmask.metric_catalog import MetricCatalog
from attmask.old_log import in_todays_keys
from attmask.reading import read_regular
from attmask.settings import Config, setting
from attmask.terminal import Bar, Screen, duration, screen
from attmask.trackers.background import CLOSING_SECONDS, Background, close_all
from attmask.trackers.mlflow import Mlflow, check_mlflow
from attmask.trackers.tensorboard import TensorBoard
from attmask.trackers.tracker import KNOWN_RUNS, TrackedRun
from attmask.trackers.wandb import WeightsAndBiases, abandon_wandb, check_wandb

METRICS = "metrics.jsonl"
OLD_METRICS = "metrics.old.jsonl"
TIME = "time"
"""The key of a record that has its time, in seconds since 1970; older logs lack it."""
logger = logging.getLogger(__name__)


class MonitorConfig(Config):
    """How often a run logs, and where it writes metrics."""

    log_every_steps: int = setting(
        10, "training steps between two records of metrics", operational=True, ge=1
    )
    watch: bool = setting(
        True,
        "measure the health of the training in every record, and warn of a collapse",
        operational=True,
    )
    line_every_seconds: float = setting(
        30.0,
        "seconds between two lines of progress when there is no terminal",
        operational=True,
        ge=0,
    )
    tensorboard: bool = setting(
        True, "also write the metrics for TensorBoard, to RUN/tensorboard", operational=True
    )
    report_every_epochs: int = setting(
        5,
        "epochs between two rebuilds of RUN/report.html, as long as they take about 5 % of the "
        "time (0 = never)",
        operational=True,
        ge=0,
    )
    wandb: bool = setting(
        False, "also log to Weights & Biases, as its variables WANDB_* say", operational=True
    )
    mlflow: bool = setting(
        False, "also log to MLflow, to MLFLOW_TRACKING_URI or RUN/mlflow", operational=True
    )


class PretrainMonitorConfig(MonitorConfig):
    """The evaluation of a pre-training on its way, beside the log."""

    knn_every_epochs: int = setting(
        1,
        "epochs between two online evaluations: k-NN, objects and quality (0 = never)",
        operational=True,
        ge=0,
    )
    knn_k: int = setting(
        20, "neighbours of the online k-NN evaluation", paper="20", operational=True, ge=1
    )
    knn_max_bank_images: int = setting(
        10_000,
        "largest number of labelled training images in the online k-NN bank",
        paper="all",
        operational=True,
        ge=1,
    )
    knn_max_query_images: int = setting(
        2_000,
        "largest number of test images for the online evaluation",
        paper="all",
        operational=True,
        ge=1,
    )
    quality_max_images: int = setting(
        2_000,
        "largest number of images for rank and uniformity (alignment uses 500 of them)",
        operational=True,
        ge=1,
    )
    segment_max_images: int = setting(
        300,
        "largest number of images with masks for the online segmentation by k-NN, two thirds of "
        "them in the bank (0 = none)",
        operational=True,
        ge=0,
    )


def check_trackers(config: MonitorConfig) -> None:
    """Raise an error before anything else is done if a tracker lacks its package or a login."""
    if distributed.is_main():
        if config.wandb:
            check_wandb()
        if config.mlflow:
            check_mlflow()


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """The records a run has logged, oldest first; a half-written end is ignored.

    Records of earlier versions are translated to today's keys and units.
    """
    path = run / METRICS
    if not path.exists():
        return []
    try:
        # After a power cut a file may end in zeros, where data did not reach the disk.
        whole_lines, _, _ = read_regular(path).rstrip(b"\0").rpartition(b"\n")
    except OSError as fault:
        raise UserError(
            f"cannot read {path}: {fault.strerror or fault}; repair the file"
        ) from fault
    # Not splitlines: a text may hold characters that Python takes for the end of a line.
    lines = whole_lines.split(b"\n") if whole_lines else []
    return [
        _record(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()
    ]


def _record(path: Path, number: int, line: bytes) -> dict[str, Any]:
    """Parse one record, or raise an error that names its line."""
    text = line.decode(errors="replace")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # bytes that are not UTF-8 are a ValueError too
        record, fault = None, "not JSON"
    else:
        fault = "no record with a step"
    if isinstance(record, dict) and type(record.get("step")) is int:
        return in_todays_keys(record)
    raise UserError(
        f"{path} has a line that is {fault} ({text[:40]!r}), line {number}; remove this line "
        "from the file, the others are kept"
    )


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a one-line UserError."""
    try:
        yield
    except OSError as fault:
        raise UserError(
            f"cannot write {path}: {fault.strerror or fault}; {atomic.what_to_do(fault)}"
        ) from fault


class Monitor:
    """Logs the metrics of one run; only the main process writes and prints."""

    def __init__(
        self,
        run: Path,
        config: MonitorConfig,
        *,
        total_steps: int,
        start_step: int = 0,
        settings: Mapping[str, Any] | None = None,
        console: Console | None = None,
    ) -> None:
        self.run = run
        self.config = config
        self.total_steps = total_steps
        self.start_step = start_step
        self._screen = screen() if console is None else Screen(console)
        self._speaks = distributed.is_main()
        self._bar: Bar | None = None
        self._shown = ExitStack()
        self._settings = settings or {}
        self._trackers: list[Background] = []
        self._first: tuple[int, float] | None = None
        self._last_line = -math.inf

    def __enter__(self) -> "Monitor":
        if not self._speaks:
            return self
        check_trackers(self.config)
        with _disk_errors(self.run / METRICS):
            atomic.make_folder(self.run)
            dropped = self._forget_steps_to_come()
            self._file = (self.run / METRICS).open("a")
        self._catalog = MetricCatalog(self.run)
        sent = frozenset((record["step"], record.get("epoch", 0)) for record in dropped)
        self._trackers = self._new_trackers(
            TrackedRun(self.run, self.start_step, self._settings, sent)
        )
        if self._screen.has_bars:
            self._bar = Bar(self.total_steps, self.start_step)
            self._shown.enter_context(self._screen.show(self._bar, stays=True))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._speaks:
            return
        self._shown.close()
        hurried = kind is not None and issubclass(kind, KeyboardInterrupt)
        close_all(self._trackers, kind is not None, 1.0 if hurried else CLOSING_SECONDS)
        try:
            with _disk_errors(self.run / METRICS):
                self._file.close()
        except UserError:
            if fault is None:  # or the error that ends the run says more
                raise

    def _new_trackers(self, run: TrackedRun) -> list[Background]:
        trackers = []
        if self.config.tensorboard:
            import_module("torch.utils.tensorboard")  # not in a thread: workers may be forked
            trackers.append(Background("TensorBoard", lambda: TensorBoard(run)))
        if self.config.wandb:
            wandb = Background("Weights & Biases", lambda: WeightsAndBiases(run), abandon_wandb)
            trackers.append(wandb)
        if self.config.mlflow:
            trackers.append(Background("MLflow", lambda: Mlflow(run)))
        return trackers

    def _forget_steps_to_come(self) -> list[dict[str, Any]]:
        """Drop the records of steps that a resumed run will log again, and return them.

        A run that starts at step 0 renames an existing log to metrics.old.jsonl.
        """
        path = self.run / METRICS
        if self.start_step == 0:
            (self.run / KNOWN_RUNS).unlink(missing_ok=True)
        if not path.exists() or path.stat().st_size == 0:
            return []
        if self.start_step == 0:
            path.replace(self.run / OLD_METRICS)
            return []
        records = read_metrics(self.run)
        kept = [record for record in records if record["step"] < self.start_step]
        atomic.write(path, "".join(json.dumps(record) + "\n" for record in kept))
        return [record for record in records if record["step"] >= self.start_step]

    def due(self, step: int) -> bool:
        """Whether to log the metrics of this step (reading them waits for the device)."""
        return step % self.config.log_every_steps == 0 or step == self.total_steps - 1

    def log(self, *metrics: Metric, step: int, epoch: int) -> None:
        """Append one record of the metrics by their keys, and hand it to the trackers."""
        if not self._speaks:
            return
        record: dict[str, Any] = {"step": step, "epoch": epoch, TIME: round(time.time(), 3)}
        # JSON has no NaN and no infinity.
        record |= {m.key: m.value if math.isfinite(m.value) else None for m in metrics}
        with _disk_errors(self.run / METRICS):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
        self._catalog.add(metrics)
        for tracker in self._trackers:
            tracker.log(values_by_key(metrics), step, epoch)

    def progress(
        self, step: int, loss: float, images_per_second: float, waiting_share: float
    ) -> None:
        """Show that `step` steps are done: a bar on a terminal, sometimes a line elsewhere."""
        if not self._speaks:
            return
        now = time.monotonic()
        left = self._time_left(step, now)
        count, speed = f"{step}/{self.total_steps}", f"{images_per_second:.1f} img/s"
        known = f"loss {loss:.4f}  {speed}  {left} left"
        if self._bar is not None:
            forms = (
                f"{count}  {known}  {waiting_share:.0%} waiting for data",
                f"{count}  {known}  {waiting_share:.0%} waiting",
                f"{count}  {known}",
                f"{count} loss {loss:.3f} {images_per_second:.0f} img/s {left}",
                f"{count} {loss:.3f} {images_per_second:.0f}/s {left}",
            )
            self._bar.update(step, forms)
        elif now - self._last_line >= self.config.line_every_seconds or step == self.total_steps:
            self._last_line = now
            waiting = f"{waiting_share:.0%} waiting for data"
            logger.info("step %d of %d  %s  %s", step, self.total_steps, known, waiting)

    def _time_left(self, step: int, now: float) -> str:
        """Estimate the remaining time from the steps since the first one shown."""
        if self._first is None:
            self._first = (step, now)
        first_step, began = self._first
        if step == first_step:
            return "0:00:00" if step == self.total_steps else "?"
        return duration((now - began) / (step - first_step) * (self.total_steps - step))

    def message(self, text: str) -> None:
        """Print one line above the progress bar."""
        if not self._speaks:
            return
        if self._bar is not None:
            self._screen.console.print(text, markup=False, highlight=False)
        else:
            logger.info("%s", text)


class Pace:
    """Steps per second and the fraction of time spent waiting, since the last measurement."""

    def __init__(self) -> None:
        self.restart(0, 0.0)

    def restart(self, step: int, waited: float) -> None:
        """Start a measurement."""
        self._since, self._step, self._waited = time.perf_counter(), step, waited

    def measure(self, step: int, waited: float) -> tuple[float, float]:
        """Return both since the last measurement, and start the next one."""
        seconds = max(time.perf_counter() - self._since, 1e-9)
        pace = (step - self._step) / seconds, (waited - self._waited) / seconds
        self.restart(step, waited)
        return pace
