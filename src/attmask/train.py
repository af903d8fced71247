"""Pre-training: the loop around the step, with checkpoints, evaluations and the log."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from attmask import distributed
from attmask.agreement import Wishes, mean_metrics, require_same, together
from attmask.checkpointing import Checkpointing
from attmask.config import PretrainConfig, check_shares
from attmask.data.config import DataConfig
from attmask.data.decode import check_readable
from attmask.data.loader import Loader
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.subset import first_per_class, first_percent
from attmask.data.views import Views
from attmask.engine import attach_engine_
from attmask.errors import UserError
from attmask.hardware import Precision, choose_device, default_workers
from attmask.heap import Heap, return_freed_memory
from attmask.interrupt import StopRequestedError, stop_signals
from attmask.metric import Metric
from attmask.models.backbone import Backbone
from attmask.monitor import Monitor, Pace, read_metrics
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.run import RunFolder
from attmask.schedules import Schedules, StepSchedule
from attmask.state import TrainingState
from attmask.step import StepReport, compute_gradients, update_

log = logging.getLogger(__name__)

Evaluate = Callable[
    [Backbone, Callable[[], AbstractContextManager[object]], Callable[[], bool]],
    tuple[Metric, ...],
]
"""Evaluates the teacher's backbone during training, under its autocast; returns metrics to log.

The last argument says whether a stop was requested: StopRequestedError is then raised."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Path
    steps: int
    total_steps: int
    evaluated: bool = True
    """Whether the last evaluation that was due was not cut off by a stop."""
    first_step: int = field(default=0, compare=False)
    """The step this process began at."""

    @property
    def finished(self) -> bool:
        """Whether training is complete; if not, the same command resumes it."""
        return self.steps == self.total_steps and self.evaluated

    @property
    def was_finished(self) -> bool:
        """Whether there was nothing left to train."""
        return self.finished and self.first_step == self.total_steps


def _subset(source: Source, data: DataConfig) -> Source:
    """The images that data.percent or data.per_class select; all if per_class lacks labels."""
    if data.percent is not None:
        return first_percent(source, data.percent)
    if (count := data.per_class) is None:
        return source
    if source.labels is None:
        log.log(
            logging.WARNING if distributed.is_main() else logging.INFO,
            "the images have no labels, so data.per_class=%d does not apply: all %d are used",
            count,
            len(source),
        )
        return source
    return first_per_class(source, count)


class Trainer:
    """A pre-training run: its parts, its progress, and how it is saved and resumed."""

    def __init__(self, config: PretrainConfig, source: Source, run: Path) -> None:
        self.config = config
        self.run = run
        self.device = distributed.own_device(choose_device(config.train.device))
        self.precision = Precision.choose(config.train.precision, self.device)
        if config.train.threads is not None:
            torch.set_num_threads(config.train.threads)
        asked = config.train.workers
        self.workers = default_workers() if asked is None else asked
        with together():
            source = _subset(source, config.data)
            check_readable(source, config.data)
            check_shares(config, distributed.world_size())
            self.loader = self._loader(source)
            self.folder = RunFolder(run, config, source)
        require_same(
            "software or hardware",
            f"torch {torch.__version__}, {self.device.type} in {self.precision.format}",
            lambda other, main: f"{other}; there {main}",
            "make them alike, or state train.precision",
        )
        require_same(
            "images",
            (len(source), self.folder.fingerprint),
            lambda other, main: f"{other[0]} of them, there {main[0]}",
            "give all processes the same images, under the same names",
        )
        self.loader.quarantine.take_over(distributed.from_main(self.loader.quarantine))
        self.schedules = Schedules(
            config.schedule,
            steps_per_epoch=self.loader.steps_per_epoch,
            batch_size=config.train.batch_size,
        )
        with together():
            self.distiller = build_distiller(config)
        backbones = self.distiller.student.backbone, self.distiller.teacher.backbone
        if config.train.recompute:
            backbones[0].recompute_blocks()
        if config.train.compile:
            for backbone in backbones:
                backbone.compile_blocks()
        attach_engine_(self.distiller, config.train.sharding, self.device)
        self.optimizer = build_optimizer(self.distiller.student, config.optim)
        self.state = TrainingState(self.distiller, self.optimizer)
        self.checkpoints = Checkpointing(
            self.folder,
            self.state,
            self.precision.scaler,
            config.checkpoint,
            steps_per_epoch=self.loader.steps_per_epoch,
        )
        self._wishes = Wishes()
        self._stop = False
        self._updating = False
        self.heap = Heap()
        self._evaluation_cut = False
        self._pace = Pace()
        self.step = self.checkpoints.restore()
        self._say_what_runs()

    def _loader(self, source: Source) -> Loader:
        config, main = self.config, distributed.is_main()
        limit = config.data.unreadable_limit
        listed = Quarantine(self.run if main else None, len(source), limit, warns=main)
        return Loader(
            source,
            config.data,
            config.views,
            batch_size=config.train.batch_size,
            seed=config.seed,
            workers=self.workers,
            quarantine=listed,
            rank=distributed.rank(),
            world=distributed.world_size(),
        )

    def _say_what_runs(self) -> None:
        parameters = sum(p.numel() for p in self.distiller.student.backbone.parameters())
        done = f", resumed at step {self.step}" if self.step else ""
        count = distributed.world_size()
        engine = "FSDP2" if self.state.is_sharded else "DDP"
        log.info(
            "%d images, %d steps of %d, backbone of %.1f M parameters, %s%s in %s%s",
            self.folder.images,
            self.schedules.steps,
            self.config.train.batch_size,
            parameters / 1e6,
            f"{count} processes ({engine}) on " if count > 1 else "",
            self.device,
            self.precision.format,
            ", finished already" if self.finished else done,
        )

    @property
    def teacher(self) -> Backbone:
        """The backbone that is kept and evaluated."""
        return self.distiller.teacher.backbone

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step == self.schedules.steps

    def save(self) -> None:
        """Begin to save the step reached; `checkpoints.finish` waits until it is on the disk."""
        if self._updating:
            raise UserError(f"step {self.step + 1} failed in its update, so it was not saved")
        self.checkpoints.save(self.step)

    def check_room(self) -> None:
        """Refuse to train where the first checkpoint would not fit on the disk."""
        with together():
            self.folder.check_room(self.state.checkpoint_bytes)

    def train(self, evaluate: Evaluate | None = None) -> Outcome:
        """Train to the end or until a stop is requested; the last step is saved either way."""
        total, first = self.schedules.steps, self.step
        if not self.finished:
            self.check_room()
            self.checkpoints.say_what_is_kept(total)
        monitor = Monitor(self.run, self.config.monitor, total_steps=total, start_step=first)
        with monitor, stop_signals() as stopped:
            try:
                with distributed.one_line_errors():
                    self._loop(evaluate, monitor, stopped)
                self.save()
                self.checkpoints.finish()
            except UserError as fault:
                if not self._updating and self.checkpoints.save_after(fault, self.step):
                    monitor.message(f"saved at step {self.step} of {total}")
                raise
            finally:
                self.loader.close()
            distributed.wait_for_all()  # a launcher may kill the others when one has ended
        return Outcome(self.run, self.step, total, not self._evaluation_cut, first)

    def _loop(
        self, evaluate: Evaluate | None, monitor: Monitor, stopped: Callable[[], bool]
    ) -> None:
        """Train epoch after epoch from the current step, with evaluations and checkpoints."""

        def wishes() -> tuple[bool, bool]:
            return stopped(), self.checkpoints.is_due()

        if self.evaluation_missing():
            self._evaluate(evaluate, monitor, stopped)
        self._pace.restart(self.step, self.loader.waited_seconds)
        while not self.finished and not self._is_stopped(stopped):
            epoch, done = divmod(self.step, self.schedules.steps_per_epoch)
            for views in self._views(epoch, done):
                self._one_step(views, monitor)
                self.checkpoints.check()
                self._stop, save = self._wishes.of_all(wishes)
                if (save or self.checkpoints.is_kept(self.step)) and not self.finished:
                    self.save()
                self._wishes.send(*wishes())  # after saving, or all would save again
                if self._stop and not self.finished:
                    break
            else:
                if self._is_evaluation_due():
                    self._evaluate(evaluate, monitor, stopped)
                    self._wishes.of_all(wishes)  # older than the checkpoint before the evaluation

    def _is_stopped(self, stopped: Callable[[], bool]) -> bool:
        """Whether any process was asked to stop."""
        return self._stop or not distributed.all_agree(not stopped())

    def _views(self, epoch: int, done: int) -> Iterator[Views]:
        for batch in self.loader.epoch(epoch, done):
            yield batch.on(self.device).normalise(self.config.data.mean, self.config.data.std)

    def _one_step(self, views: Views, monitor: Monitor) -> None:
        now = self.schedules.at(self.step)
        report = self.learn(views, now)
        self.step += 1
        if monitor.due(now.step):
            self._report(report, now, monitor)

    def learn(self, views: Views, now: StepSchedule) -> StepReport:
        """One training step with the run's settings; the caller counts it.

        A step that fails before its update leaves a state that can be saved.
        """
        config, parts = self.config, (self.distiller, self.optimizer)
        try:
            report = compute_gradients(
                *parts, views, now, self.precision, accumulate=config.train.accumulate
            )
            self._updating = True
            update_(*parts, report.mean_logits, now, self.precision, clip=config.optim.clip)
            self._updating = False
            if self.device.type == "cpu":
                self.heap.after_step()
            return report
        except torch.OutOfMemoryError as fault:
            raise UserError(
                f"{self.device} is out of memory with {config.train.batch_size} images in "
                f"{config.train.accumulate} parts; use train.accumulate="
                f"{2 * config.train.accumulate} or train.recompute=true, which change only memory "
                "and time"
            ) from fault

    def _report(self, report: StepReport, now: StepSchedule, monitor: Monitor) -> None:
        """Log the step and show it; this is the only place that waits for the device."""
        metrics = mean_metrics(report.metrics())
        total = metrics[0].value
        if not math.isfinite(total):  # in all processes
            with together():
                monitor.check_finite(now.step, total)
        self._tell_unreadable()
        speed, waiting = self._pace.measure(self.step, self.loader.waited_seconds)
        images_per_second = speed * self.config.train.batch_size
        unreadable = self.loader.quarantine.count
        monitor.log(
            *metrics,
            *now.metrics(),
            Metric("speed.images_per_second", images_per_second, "images/s", True, title="speed"),
            Metric("speed.waiting", 100 * waiting, "%", False, title="waiting for data"),
            Metric("data.unreadable", unreadable, "images", False, title="unreadable images"),
            step=now.step,
            epoch=now.epoch,
        )
        monitor.progress(self.step, total, images_per_second, waiting)

    def _tell_unreadable(self) -> None:
        """Add the unreadable images that other processes met, so that all count the same ones."""
        quarantine = self.loader.quarantine
        if distributed.world_size() > 1:
            told = distributed.gather(quarantine.take_untold())
            with together():
                for lines in told:
                    quarantine.add(lines)
            quarantine.take_untold()  # all have them

    def evaluation_missing(self) -> bool:
        """Whether a resumed run still lacks the evaluation of its current step."""
        if not self._is_evaluation_due():
            return False
        with together():
            missing = distributed.is_main() and self._lacks_evaluation()
        return distributed.from_main(missing)

    def _lacks_evaluation(self) -> bool:
        here = max(0, self.step - 1), self.step // self.schedules.steps_per_epoch
        return not any(
            (record["step"], record.get("epoch")) == here and "loss.total" not in record
            for record in read_metrics(self.run)
        )

    def _is_evaluation_due(self) -> bool:
        """Before the first step, after every few epochs, and after the last."""
        epoch, inside = divmod(self.step, self.schedules.steps_per_epoch)
        every = self.config.monitor.knn_every_epochs
        return every > 0 and inside == 0 and (epoch % every == 0 or self.finished)

    def _evaluate(
        self, evaluate: Evaluate | None, monitor: Monitor, stopped: Callable[[], bool]
    ) -> None:
        """Evaluate the teacher; a resumed run repeats an evaluation that a stop interrupted."""
        if evaluate is None:
            return
        if self.step > 0:
            self.save()
            self.checkpoints.finish()
        epoch = self.step // self.schedules.steps_per_epoch
        return_freed_memory()  # that of the steps, which an evaluation cannot use well
        try:
            metrics = evaluate(self.teacher, self.precision.autocast, stopped)
        except StopRequestedError:  # in all processes
            self._evaluation_cut = self._stop = True
            monitor.message(f"epoch {epoch}: the evaluation was stopped; a resumed run repeats it")
            return
        if metrics:
            # Under the last step that is done, so that a resumed run keeps it.
            monitor.log(*metrics, step=max(0, self.step - 1), epoch=epoch)
            first = metrics[:4]  # a line for a person; all are in the log
            said = ", ".join(f"{m.key} {m.value:.4g} {m.unit}".rstrip() for m in first)
            monitor.message(f"epoch {epoch}: {said}")
        return_freed_memory()
        self._pace.restart(self.step, self.loader.waited_seconds)
