"""The report of a run that is being trained, in RUN/report.html."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from attmask import distributed
from attmask.curves.run_curves import read_curves
from attmask.errors import UserError
from attmask.html_report import snapshots
from attmask.html_report.gallery import gallery_of
from attmask.html_report.pictures import Reading
from attmask.html_report.report import write_report
from attmask.html_report.run_images import images_of
from attmask.interrupt import StopRequestedError, stop_signals
from attmask.run_config import RunConfig
from attmask.tuning.config import TunedConfig

REPORT = "report.html"
SHARE = 0.05
"""The part of the time of a training that its reports may take."""
MOST_SECONDS = 300.0
"""So long may a single one take."""

log = logging.getLogger(__name__)


class ReportsOnTheWay:
    """Writes the report anew every few epochs; nothing that goes wrong with it ends the training.

    The main process reads the checkpoint that was just saved, as `attmask report` does. In
    between it takes snapshots, which show how the features change. Neither may take so long that
    other processes give up waiting.
    """

    def __init__(self, run: Path, config: RunConfig) -> None:
        self._run, self._config = run, config
        self._every = config.monitor.report_every_epochs
        self._epochs = config.schedule.epochs
        self._most_seconds = min(MOST_SECONDS, 60 * config.train.timeout_minutes / 4)
        self._written, self._seen = 0, -self._epochs
        self._ended, self._seconds = time.monotonic(), 0.0

    def __call__(self, epoch: int, stopped: Callable[[], bool]) -> None:
        """Write it after an evaluation, if it is due."""
        if not self._every or not distributed.is_main() or not self._has_time():
            return
        if self._every <= epoch - self._written:
            self._written = self._seen = epoch
            self._spend(self._write, stopped)
        elif self._epochs <= snapshots.MOST_EPOCHS * (epoch - self._seen):
            self._seen = epoch
            self._spend(self._look, stopped)

    def finish(self) -> None:
        """Write it after the last step; all processes call it together."""
        if self._every and distributed.is_main():
            with stop_signals() as stopped:
                self._spend(self._write, lambda: bool(stopped()))
        distributed.wait_for_all()  # a launcher may kill the others when one has ended

    def _has_time(self) -> bool:
        """Whether enough time has passed since the last one, for its part of the whole."""
        return SHARE * (time.monotonic() - self._ended) >= self._seconds

    def _write(self, check: Callable[[], None]) -> None:
        page, device = self._run / REPORT, self._config.train.device
        write_report([self._run], page, device=device, check=check, looks_back=False)

    def _look(self, check: Callable[[], None]) -> None:
        curves = read_curves(self._run)
        if isinstance(curves.config, TunedConfig) and not (self._run / "checkpoints").exists():
            return  # a fine-tuning has no untrained network of its own
        reading = Reading.of(curves.config, curves.config.train.device, check)
        model = reading.newest(self._run, curves.config)
        gallery = gallery_of(images_of(curves, None), model, check)
        snapshots.keep(self._run, reading.snapshot(model, gallery), gallery)

    def _spend(
        self, work: Callable[[Callable[[], None]], None], stopped: Callable[[], bool]
    ) -> None:
        """Do the work; an error is a warning, since a report is no reason to lose a training."""
        began = time.monotonic()

        def check() -> None:
            if stopped():
                raise StopRequestedError
            if time.monotonic() - began > self._most_seconds:
                raise UserError(
                    f"it takes more than {self._most_seconds:.0f} s here; run `attmask report "
                    f"{self._run}`"
                )

        try:
            work(check)
        except StopRequestedError:
            log.info("the report was not written, because the run is stopped")
        except UserError as fault:
            log.warning("the report was not written: %s", fault)
        except Exception:
            log.warning("the report was not written", exc_info=True)
        self._ended = time.monotonic()
        self._seconds = self._ended - began
