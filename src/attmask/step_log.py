"""What is told of a step: its metrics, progress, heartbeat, and warnings of the watch."""

import logging
import math
from typing import Any

from attmask import distributed
from attmask.agreement import mean_metrics, together
from attmask.data.feeding import BatchLoader
from attmask.divergence import SkippedSteps
from attmask.heartbeat import Heartbeat
from attmask.metric import Metric, values_by_key
from attmask.monitor import Monitor, Pace
from attmask.run_config import RunConfig
from attmask.schedules import Now
from attmask.update import Report
from attmask.watch import Watch

log = logging.getLogger(__name__)


class StepLog:
    """Tells of steps every `monitor.log_every_steps`; all processes call it together."""

    def __init__(
        self,
        config: RunConfig,
        watch: Watch,
        loader: BatchLoader[Any],
        skipped: SkippedSteps,
        heartbeat: Heartbeat,
        *,
        total_steps: int,
    ) -> None:
        self.watch = watch
        self._config, self._loader, self._skipped = config, loader, skipped
        self._heartbeat = heartbeat
        self._total_steps = total_steps
        self._pace = Pace()
        self.standing: tuple[str, ...] = ()
        """What evaluations have found and still holds, a line each."""

    def restart(self, done: int) -> None:
        """Begin to measure the speed after so many steps."""
        self._pace.restart(done, self._loader.waited_seconds)

    def tell(self, report: Report, now: Now, done: int, monitor: Monitor) -> None:
        """Log the last of the steps that are done; only this waits for the device."""
        metrics = mean_metrics(report.metrics())
        total = metrics[0].value
        self._share_unreadable()
        speed, waiting = self._pace.measure(done, self._loader.waited_seconds)
        images_per_second = speed * self._config.train.batch_size
        unreadable, skipped = self._loader.quarantine.count, self._skipped.count
        monitor.log(
            *metrics,
            *now.metrics(),
            Metric("speed.images_per_second", images_per_second, "images/s", True, title="speed"),
            Metric("speed.waiting", 100 * waiting, "%", False, title="waiting for data"),
            Metric("data.unreadable", unreadable, "images", False, title="unreadable images"),
            Metric("health.skipped_steps", skipped, "steps", False, title="skipped steps"),
            step=now.step,
            epoch=now.epoch,
        )
        if self._config.monitor.watch:
            self._warn(metrics, now)
        monitor.progress(done, total, images_per_second, waiting)
        self._heartbeat.update(
            images_per_second=images_per_second,
            seconds_left=(self._total_steps - done) / max(speed, 1e-9),
            skipped_steps=skipped,
            loss=total if math.isfinite(total) else None,
            findings=self.findings,
        )

    @property
    def findings(self) -> list[str]:
        """What is wrong with the training now, a line each."""
        return [*self.standing, *(finding.text for finding in self.watch.findings)]

    def find(self, text: str | None, step: int) -> None:
        """Take what an evaluation has found, or None if nothing is wrong, and tell it."""
        self.standing = () if text is None else (text,)
        if text is not None and distributed.is_main():
            log.warning("step %d: %s", step, text)
            self._heartbeat.tell("finding", step=step, text=text)
        self._heartbeat.update(findings=self.findings)

    def _warn(self, metrics: tuple[Metric, ...], now: Now) -> None:
        """Warn of what the watch has found; all processes find the same, the main one speaks."""
        for finding in self.watch.see(now.step, now.epoch, values_by_key(metrics)):
            if distributed.is_main():
                log.warning("step %d: %s", now.step, finding.text)
                self._heartbeat.tell("finding", step=now.step, text=finding.text)

    def _share_unreadable(self) -> None:
        """Add the unreadable images that other processes met, so that all count the same ones."""
        quarantine = self._loader.quarantine
        if distributed.world_size() > 1:
            told = distributed.gather(quarantine.take_untold())
            with together():
                for lines in told:
                    quarantine.add(lines)
            quarantine.take_untold()  # all have them
