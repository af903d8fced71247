"""The report of a run that is being trained, in RUN/report.html."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from attmask import distributed
from attmask.curves.run_curves import read_curves
from attmask.errors import UserError
from attmask.html_report import snapshots
from attmask.html_report.gallery import Gallery, gallery_of
from attmask.html_report.pictures import Reading
from attmask.html_report.report import write_report
from attmask.html_report.run_images import images_of
from attmask.interrupt import StopRequestedError
from attmask.run_config import RunConfig

REPORT = "report.html"
SHARE = 0.05
"""The part of the time of a training that its reports may take."""

log = logging.getLogger(__name__)


class ReportsOnTheWay:
    """Writes the report anew every few epochs; nothing that goes wrong with it ends the training.

    The main process reads the checkpoint that was just saved, as `attmask report` does. In
    between it takes snapshots, which show how the features change.
    """

    def __init__(self, run: Path, config: RunConfig) -> None:
        self._run, self._device = run, config.train.device
        self._every = config.monitor.report_every_epochs
        self._epochs = config.schedule.epochs
        self._gallery: Gallery | None = None
        self._written, self._seen = 0, -self._epochs
        self._page, self._snapshot = _Allowance(), _Allowance()

    def __call__(self, epoch: int, stopped: Callable[[], bool]) -> None:
        """Write it after an evaluation, if it is due."""
        if not self._every or not distributed.is_main():
            return

        def check() -> None:
            if stopped():
                raise StopRequestedError

        if self._every <= epoch - self._written and self._page.is_left():
            self._written = self._seen = epoch
            self._page.spend(lambda: self._write(check))
        elif self._epochs <= snapshots.MOST_EPOCHS * (epoch - self._seen) and (
            self._snapshot.is_left()
        ):
            self._seen = epoch
            self._snapshot.spend(lambda: self._look(check))

    def finish(self) -> None:
        """Write it after the last step."""
        if self._every and distributed.is_main():
            self._page.spend(lambda: self._write(lambda: None))

    def _write(self, check: Callable[[], None]) -> None:
        write_report([self._run], self._run / REPORT, device=self._device, check=check)

    def _look(self, check: Callable[[], None]) -> None:
        curves = read_curves(self._run)
        reading = Reading.of(curves.config, self._device, check)
        model = reading.newest(self._run)
        if self._gallery is None:
            self._gallery = gallery_of(images_of(curves, None), model)
        snapshots.keep(self._run, reading.snapshot(model, self._gallery), self._gallery)


class _Allowance:
    """The part of the time that may be spent on something."""

    def __init__(self) -> None:
        self._ended = time.monotonic()
        self._seconds = 0.0

    def is_left(self) -> bool:
        """Whether enough time has passed since it was spent last."""
        return SHARE * (time.monotonic() - self._ended) >= self._seconds

    def spend(self, work: Callable[[], None]) -> None:
        """Do the work; an error is a warning, since a report is no reason to lose a training."""
        began = time.monotonic()
        try:
            work()
        except StopRequestedError:
            log.info("the report was not written, because the run is stopped")
        except UserError as fault:
            log.warning("the report was not written: %s", fault)
        except Exception:
            log.warning("the report was not written", exc_info=True)
        self._ended = time.monotonic()
        self._seconds = self._ended - began
