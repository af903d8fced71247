"""Pre-training: the loop around the step, with checkpoints, evaluations and the log."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from attmask import distributed
from attmask.agreement import SharedError, Wishes, require_same, together
from attmask.checkpointing import Checkpointing
from attmask.config import PretrainConfig, check_shares, with_epochs
from attmask.data.batch import Batch
from attmask.data.decode import check_readable
from attmask.data.loader import Loader
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.subset import trained_on
from attmask.data.views import Views
from attmask.divergence import DivergedError, SkippedSteps
from attmask.engine import attach_engine_
from attmask.errors import UserError
from attmask.hardware import Precision, choose_device, default_workers
from attmask.heap import Heap, return_freed_memory
from attmask.heartbeat import Heartbeat
from attmask.history import now as time_now
from attmask.interrupt import StopRequestedError, stop_signals
from attmask.metric import Metric
from attmask.models.backbone import Backbone
from attmask.monitor import Monitor, read_metrics
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.run import RunFolder
from attmask.schedules import Schedules, StepSchedule, changes_at
from attmask.state import TrainingState
from attmask.step import StepReport, Update, compute_gradients, update_
from attmask.step_log import StepLog

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
    stopped_by: int = field(default=0, compare=False)
    """The number of the signal that asked for a stop, if one did."""

    @property
    def finished(self) -> bool:
        """Whether training is complete; if not, the same command resumes it."""
        return self.steps == self.total_steps and self.evaluated

    @property
    def was_finished(self) -> bool:
        """Whether there was nothing left to train."""
        return self.finished and self.first_step == self.total_steps


class TakenOverError(SharedError):
    """Another process trains in the folder of this run."""


class Trainer:
    """A pre-training run: its parts, its progress, and how it is saved and resumed."""

    def __init__(
        self,
        config: PretrainConfig,
        source: Source,
        run: Path,
        *,
        heartbeat: Heartbeat | None = None,
        extend: bool = False,
    ) -> None:
        self.config = config
        self.run = run
        self.heartbeat = heartbeat or Heartbeat(run)  # one that was not taken is silent
        self.device = distributed.own_device(choose_device(config.train.device))
        self.precision = Precision.choose(config.train.precision, self.device)
        if config.train.threads is not None:
            torch.set_num_threads(config.train.threads)
        asked = config.train.workers
        self.workers = default_workers() if asked is None else asked
        with together():
            source = self._trained_on(source)
            check_readable(source, config.data)
            check_shares(config, distributed.world_size())
            self.loader = self._loader(source)
            self.folder = RunFolder(run, config, source, extend=extend)
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
        self.skipped = SkippedSteps(
            run,
            self.device,
            self.precision.format,
            names=lambda samples: [source.place(sample) for sample in samples],
            parameters=[name for name, _ in self.distiller.student.named_parameters()],
            weights=self.state.whole_weights,
        )
        self.checkpoints = Checkpointing(
            self.folder,
            self.state,
            self.precision.scaler,
            self.skipped,
            config.checkpoint,
            steps_per_epoch=self.loader.steps_per_epoch,
        )
        self._wishes = Wishes()
        self._stop = 0
        self._updating = False
        self.heap = Heap()
        self._evaluation_cut = False
        self.told = StepLog(
            config, self.loader, self.skipped, self.heartbeat, total_steps=self.schedules.steps
        )
        self.step = self.checkpoints.restore()
        self._say_what_runs()
        self._say_what_was_extended()

    def _trained_on(self, source: Source) -> Source:
        count = self.config.data.per_class
        if count is not None and source.labels is None and distributed.is_main():
            log.warning(
                "the images have no labels, so data.per_class=%d does not apply: all %d are used",
                count,
                len(source),
            )
        return trained_on(source, self.config.data)

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

    def _say_what_was_extended(self) -> None:
        """Log what the schedules of a longer training change from here on."""
        if (before := self.folder.extended_from) is None or not distributed.is_main():
            return
        planned = Schedules(
            with_epochs(self.config, before).schedule,
            steps_per_epoch=self.loader.steps_per_epoch,
            batch_size=self.config.train.batch_size,
        )
        log.info(
            "extended from %d to %d epochs: from step %d on, schedules are those of a training of "
            "%d steps (%s)",
            before,
            self.config.schedule.epochs,
            self.step,
            self.schedules.steps,
            changes_at(self.step, planned, self.schedules) or "nothing changes at this step",
        )

    @property
    def teacher(self) -> Backbone:
        """The backbone that is kept and evaluated."""
        return self.distiller.teacher.backbone

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step == self.schedules.steps

    def save_if_well(self) -> None:
        """Begin to save the step reached, unless it was skipped: a run goes back to before it."""
        self.skipped.settle()
        if not self.skipped.in_a_row:
            self.save()

    def save(self) -> None:
        """Begin to save the step reached; `checkpoints.finish` waits until it is on the disk."""
        if self._updating:
            raise UserError(f"step {self.step + 1} failed in its update, so it was not saved")
        self.skipped.settle()
        if (line := distributed.from_main(self.heartbeat.takeover())) is not None:
            raise TakenOverError(line)
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
        monitor = Monitor(
            self.run,
            self.config.monitor,
            total_steps=total,
            start_step=first,
            settings=self.config.model_dump(mode="json"),
        )
        self.heartbeat.update(
            state="training",
            step=first,
            steps=total,
            epochs=self.config.schedule.epochs,
            skipped_steps=self.skipped.count,
        )
        with monitor, stop_signals() as stopped:
            try:
                with distributed.one_line_errors():
                    self._loop(evaluate, monitor, stopped)
                self.save()
                self.checkpoints.finish()
            except (DivergedError, TakenOverError):
                raise
            except UserError as fault:
                if not self._updating and self.checkpoints.save_after(fault, self.step):
                    monitor.message(f"saved at step {self.step} of {total}")
                raise
            finally:
                self.loader.close()
            distributed.wait_for_all()  # a launcher may kill the others when one has ended
        outcome = Outcome(self.run, self.step, total, not self._evaluation_cut, first, self._stop)
        self.heartbeat.update(state="finished" if outcome.finished else "stopped", step=self.step)
        return outcome

    def _loop(
        self, evaluate: Evaluate | None, monitor: Monitor, stopped: Callable[[], int]
    ) -> None:
        """Train epoch after epoch from the current step, with evaluations and checkpoints."""

        def wishes() -> tuple[int, int]:
            return stopped(), self.checkpoints.is_due()

        if self.evaluation_missing():
            self._evaluate(evaluate, monitor, stopped)
        self.told.restart(self.step)
        while not self.finished and not self._is_stopped(stopped):
            epoch, done = divmod(self.step, self.schedules.steps_per_epoch)
            for batch in self.loader.epoch(epoch, done):
                self._one_step(batch, monitor)
                self.checkpoints.check()
                self._stop, save = self._wishes.of_all(wishes)
                kept = self.checkpoints.is_kept(self.step)
                if (save or kept) and not self.finished:
                    self.save_if_well()
                self._wishes.send(*wishes())  # after saving, or all would save again
                if self._stop and not self.finished:
                    break
            else:
                if self._is_evaluation_due():
                    self._evaluate(evaluate, monitor, stopped)
                    self._wishes.of_all(wishes)  # older than the checkpoint before the evaluation

    def _is_stopped(self, stopped: Callable[[], int]) -> bool:
        """Whether any process was asked to stop."""
        self._stop = self._stop or max(distributed.gather(stopped()))
        return bool(self._stop)

    def _one_step(self, batch: Batch, monitor: Monitor) -> None:
        now = self.schedules.at(self.step)
        now = replace(now, lr=now.lr * self.folder.history.lr_factor)
        views = batch.on(self.device).normalise(self.config.data.mean, self.config.data.std)
        due = monitor.due(now.step)
        report, update = self.learn(views, now, observe=due and self.config.monitor.watch)
        self.step += 1
        self.heartbeat.update(step=self.step, epoch=now.epoch, step_time=time_now())
        if due:
            self.told.tell(report, now, self.step, monitor)
        self.skipped.add(now, batch.samples.tolist(), report, update)

    def learn(
        self, views: Views, now: StepSchedule, *, observe: bool = False
    ) -> tuple[StepReport, Update]:
        """One training step with the run's settings; the caller counts it.

        A step that fails before its update leaves a state that can be saved.
        """
        config, parts = self.config, (self.distiller, self.optimizer)
        try:
            report = compute_gradients(
                *parts,
                views,
                now,
                self.precision,
                accumulate=config.train.accumulate,
                observe=observe,
            )
            self._updating = True
            update = update_(*parts, report, now, self.precision, clip=config.optim.clip)
            self._updating = False
            if self.device.type == "cpu":
                self.heap.after_step()
            return report, update
        except torch.OutOfMemoryError as fault:
            raise UserError(
                f"{self.device} is out of memory with {config.train.batch_size} images in "
                f"{config.train.accumulate} parts; use train.accumulate="
                f"{2 * config.train.accumulate} or train.recompute=true, which change only memory "
                "and time"
            ) from fault

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
        self, evaluate: Evaluate | None, monitor: Monitor, stopped: Callable[[], int]
    ) -> None:
        """Evaluate the teacher; a resumed run repeats an evaluation that a stop interrupted."""
        if evaluate is None:
            return
        if self.step > 0:
            self.save_if_well()
            self.checkpoints.finish()
        epoch = self.step // self.schedules.steps_per_epoch
        return_freed_memory()  # that of the steps, which an evaluation cannot use well
        self.heartbeat.update(state="evaluating")
        try:
            metrics = evaluate(self.teacher, self.precision.autocast, lambda: bool(stopped()))
        except StopRequestedError:  # in all processes
            self._evaluation_cut = self._is_stopped(stopped)
            monitor.message(f"epoch {epoch}: the evaluation was stopped; a resumed run repeats it")
            return
        if metrics:
            # Under the last step that is done, so that a resumed run keeps it.
            monitor.log(*metrics, step=max(0, self.step - 1), epoch=epoch)
            first = metrics[:4]  # a line for a person; all are in the log
            said = ", ".join(f"{m.key} {m.value:.4g} {m.unit}".rstrip() for m in first)
            monitor.message(f"epoch {epoch}: {said}")
        return_freed_memory()
        self.heartbeat.update(state="training")
        self.told.restart(self.step)
