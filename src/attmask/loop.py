"""The loop around a training step: checkpoints, evaluations, the log, and how a run goes on.

What is trained differs, and with it batch, step and schedules; everything else is here.
"""

import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from attmask import distributed
from attmask.agreement import SharedError, Wishes, require_same, together
from attmask.checkpointing import Checkpointing
from attmask.data.decode import check_readable
from attmask.data.feeding import AnyBatch, BatchLoader
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.divergence import DivergedError, SkippedSteps
from attmask.errors import UserError
from attmask.hardware import Precision, choose_device, default_workers
from attmask.heap import Heap, return_freed_memory
from attmask.heartbeat import Heartbeat
from attmask.history import now as time_now
from attmask.interrupt import StopRequestedError, stop_signals
from attmask.metric import Metric
from attmask.monitor import Monitor, read_metrics
from attmask.run import RunFolder
from attmask.run_config import AnyRun, check_shares, with_length
from attmask.schedules import Now, Timetable, changes_at
from attmask.software import software
from attmask.state import TrainingState
from attmask.step_log import StepLog
from attmask.update import Report, Update
from attmask.watch import Watch

log = logging.getLogger(__name__)

AnyBatchType = TypeVar("AnyBatchType", bound=AnyBatch)
AnyNow = TypeVar("AnyNow", bound=Now)
Evaluate = Callable[
    [Any, Callable[[], AbstractContextManager[object]], Callable[[], bool]], tuple[Metric, ...]
]
"""Evaluates what is trained, under its autocast; returns metrics to log.

The last argument says whether a stop was requested: StopRequestedError is then raised."""
AfterEvaluation = Callable[[int, Callable[[], bool]], None]
"""Called with the epochs that are done, and with whether a stop was requested."""


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
    ended_early: bool = False
    """Whether nothing was left to gain before the last step."""
    said: str = field(default="", compare=False)
    """What else there is to say of the end, in one line."""

    @property
    def finished(self) -> bool:
        """Whether training is complete; if not, the same command resumes it."""
        return (self.steps == self.total_steps or self.ended_early) and self.evaluated

    @property
    def was_finished(self) -> bool:
        """Whether there was nothing left to train."""
        return self.finished and self.first_step == self.steps


class TakenOverError(SharedError):
    """Another process trains in the folder of this run."""


class Trained(NamedTuple):
    """What is saved, the part of it that the optimizer updates, and the optimizer."""

    whole: nn.Module
    trained: nn.Module
    optimizer: Optimizer


class Loop(ABC, Generic[AnyRun, AnyBatchType, AnyNow]):
    """A training: its parts, its progress, and how it is saved and resumed."""

    schedules: Timetable[AnyNow]
    loader: BatchLoader[AnyBatchType]

    def __init__(
        self,
        config: AnyRun,
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
            self.loader = self._load(source, self._quarantine(source))
            self.folder = RunFolder(run, config, source, extend=extend)
        self._agree(source)
        self.schedules = self._timetable(config)
        with together():
            whole, trained, self.optimizer = self._build()
        self.state = TrainingState(whole, trained, self.optimizer)
        self.skipped = SkippedSteps(
            run,
            self.device,
            self.precision.format,
            names=lambda samples: [source.place(sample) for sample in samples],
            parameters=[name for name, _ in trained.named_parameters()],
            weights=self.state.whole_weights,
        )
        self.checkpoints = Checkpointing(
            self.folder,
            self.state,
            self.precision.scaler,
            self.skipped,
            config.checkpoint,
            steps_per_epoch=self.loader.steps_per_epoch,
            about=self._about(),
        )
        self._wishes = Wishes()
        self._stop = 0
        self._updating = False
        self.heap = Heap()
        self._evaluation_cut = False
        self.ended_early = False
        self._after_evaluation: AfterEvaluation | None = None
        self.told = StepLog(
            config,
            self._watch(),
            self.loader,
            self.skipped,
            self.heartbeat,
            total_steps=self.schedules.steps,
        )
        self.step = self.checkpoints.restore()
        self._look_back()
        self._say_what_runs()
        self._say_what_was_extended()

    @abstractmethod
    def _trained_on(self, source: Source) -> Source:
        """The images of the source that are trained on."""

    @abstractmethod
    def _load(self, source: Source, quarantine: Quarantine) -> BatchLoader[AnyBatchType]:
        """The loader of the batches."""

    @abstractmethod
    def _timetable(self, config: AnyRun) -> Timetable[AnyNow]:
        """The schedules of a config, which may be one of another length."""

    @abstractmethod
    def _build(self) -> Trained:
        """The networks on their device and engine, and the optimizer."""

    @abstractmethod
    def _watch(self) -> Watch:
        """The watch over the metrics of the steps."""

    @abstractmethod
    def _learn_from(
        self, batch: AnyBatchType, now: AnyNow, *, observe: bool
    ) -> tuple[Report, Update]:
        """One training step; the caller counts it."""

    @property
    @abstractmethod
    def _evaluated(self) -> nn.Module:
        """What is evaluated."""

    @property
    @abstractmethod
    def _evaluated_every_epochs(self) -> int:
        """The epochs between two evaluations; 0 is never."""

    def _about(self) -> dict[str, object]:
        """What every checkpoint says of what was trained, beside settings and progress."""
        return {}

    def _look_back(self) -> None:
        """Take from the log what a resumed run needs to know of its evaluations."""

    def _see_evaluation(self, metrics: tuple[Metric, ...], monitor: Monitor) -> None:
        """What follows from an evaluation, before it is logged."""

    def _closing_line(self) -> str:
        """What there is to say of a training that is over, in one line."""
        return ""

    @property
    @abstractmethod
    def _backbone(self) -> nn.Module:
        """The backbone whose size is told."""

    def _quarantine(self, source: Source) -> Quarantine:
        main, limit = distributed.is_main(), self.config.data.unreadable_limit
        return Quarantine(self.run if main else None, len(source), limit, warns=main)

    def _agree(self, source: Source) -> None:
        """Raise an error if the processes do not have the same software, hardware and images."""
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

    def _say_what_runs(self) -> None:
        parameters = sum(p.numel() for p in self._backbone.parameters())
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
        planned = self._timetable(with_length(self.config, before))
        same = before.epochs == self.config.schedule.epochs
        log.info(
            "extended from %d to %d %s: from step %d on, schedules are those of a training of "
            "%d steps (%s)",
            planned.steps if same else before.epochs,
            self.schedules.steps if same else self.config.schedule.epochs,
            "steps" if same else "epochs",
            self.step,
            self.schedules.steps,
            changes_at(self.step, planned, self.schedules) or "nothing changes at this step",
        )

    @property
    def finished(self) -> bool:
        """Whether all steps are done, or no more are wanted."""
        return self.step == self.schedules.steps or self.ended_early

    @property
    def epoch(self) -> int:
        """The number of epochs that are done; the last may be incomplete."""
        return -(-self.step // self.schedules.steps_per_epoch)

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

    def train(
        self, evaluate: Evaluate | None = None, after_evaluation: AfterEvaluation | None = None
    ) -> Outcome:
        """Train to the end or until a stop is requested; the last step is saved either way.

        `after_evaluation` is called between an evaluation and the next step.
        """
        self._after_evaluation = after_evaluation
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
        if not self.finished:
            self._tell_start()
        with monitor, stop_signals() as stopped:
            try:
                with distributed.one_line_errors():
                    self._loop(evaluate, monitor, stopped)
                self.save()
                self.checkpoints.finish()
            except DivergedError as fault:
                self.heartbeat.tell("return", step=self.step, text=f"no longer finite: {fault}")
                raise
            except TakenOverError:
                raise
            except UserError as fault:
                if not self._updating and self.checkpoints.save_after(fault, self.step):
                    monitor.message(f"saved at step {self.step} of {total}")
                raise
            finally:
                self.loader.close()
            distributed.wait_for_all()  # a launcher may kill the others when one has ended
        outcome = Outcome(
            self.run,
            self.step,
            total,
            not self._evaluation_cut,
            first,
            self._stop,
            self.ended_early,
            self._closing_line() if self.finished else "",
        )
        self.heartbeat.update(state="finished" if outcome.finished else "stopped", step=self.step)
        if not outcome.was_finished:
            said = "finished" if outcome.finished else "stopped and saved"
            kind = "finish" if outcome.finished else "stop"
            text = f"{said} at step {self.step} of {total}"
            text += f": {outcome.said}" if outcome.said else ""
            self.heartbeat.tell(kind, step=self.step, text=text)
        return outcome

    def _tell_start(self) -> None:
        """Add to the record of the run on what it goes on from here."""
        processes, steps = distributed.world_size(), self.schedules.steps
        self.heartbeat.tell(
            "start",
            step=self.step,
            text=f"{'resumed' if self.step else 'started'} at step {self.step} of {steps}",
            host=socket.gethostname(),
            processes=processes,
            device=str(self.device),
            format=self.precision.format,
            software=software(),
        )

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
                if self._stop or self.finished:
                    break
            if self._is_evaluation_due() and (self.finished or not self._stop):
                self._evaluate(evaluate, monitor, stopped)
                self._wishes.of_all(wishes)  # older than the checkpoint before the evaluation

    def _is_stopped(self, stopped: Callable[[], int]) -> bool:
        """Whether any process was asked to stop."""
        self._stop = self._stop or max(distributed.gather(stopped()))
        return bool(self._stop)

    def _one_step(self, batch: AnyBatchType, monitor: Monitor) -> None:
        now = self.schedules.at(self.step)
        now = replace(now, lr=now.lr * self.folder.history.lr_factor)
        due = monitor.due(now.step)
        report, update = self._learn_from(batch, now, observe=due and self.config.monitor.watch)
        self.step += 1
        self.heartbeat.update(step=self.step, epoch=now.epoch, step_time=time_now())
        if due:
            self.told.tell(report, now, self.step, monitor)
        self.skipped.add(now, batch.samples.tolist(), report, update)

    @contextmanager
    def _fitting_into_memory(self) -> Iterator[None]:
        """Turn a step that does not fit into memory into one line."""
        try:
            yield
        except torch.OutOfMemoryError as fault:
            train = self.config.train
            raise UserError(
                f"{self.device} is out of memory with {train.batch_size} images in "
                f"{train.accumulate} parts; use {self._less_memory()}"
            ) from fault

    def _less_memory(self) -> str:
        """The settings with which a step takes less memory, for a message."""
        parts = 2 * self.config.train.accumulate
        return (
            f"train.accumulate={parts} or train.recompute=true, which change only memory and time"
        )

    @contextmanager
    def _in_update(self) -> Iterator[None]:
        """Around an update: a step that fails inside of it leaves a state that is not saved."""
        self._updating = True
        yield
        self._updating = False
        if self.device.type == "cpu":
            self.heap.after_step()

    def evaluation_missing(self) -> bool:
        """Whether a resumed run still lacks the evaluation of its current step."""
        if not self._is_evaluation_due():
            return False
        with together():
            missing = distributed.is_main() and self._lacks_evaluation()
        return distributed.from_main(missing)

    def _lacks_evaluation(self) -> bool:
        here = max(0, self.step - 1), self.epoch
        return not any(
            (record["step"], record.get("epoch")) == here and "loss.total" not in record
            for record in read_metrics(self.run)
        )

    def _is_evaluation_due(self) -> bool:
        """Before the first step, after every few epochs, and after the last step."""
        epoch, inside = divmod(self.step, self.schedules.steps_per_epoch)
        every = self._evaluated_every_epochs
        return every > 0 and (self.finished or (inside == 0 and epoch % every == 0))

    def _evaluate(
        self, evaluate: Evaluate | None, monitor: Monitor, stopped: Callable[[], int]
    ) -> None:
        """Evaluate what is trained; a resumed run repeats an evaluation that a stop interrupted."""
        if evaluate is None:
            return
        if self.step > 0:
            self.save_if_well()
            self.checkpoints.finish()
        epoch = self.epoch
        return_freed_memory()  # that of the steps, which an evaluation cannot use well
        self.heartbeat.update(state="evaluating")
        try:
            metrics = evaluate(self._evaluated, self.precision.autocast, lambda: bool(stopped()))
        except StopRequestedError:  # in all processes
            self._evaluation_cut = self._is_stopped(stopped)
            monitor.message(f"epoch {epoch}: the evaluation was stopped; a resumed run repeats it")
            return
        if metrics:
            self._see_evaluation(metrics, monitor)
            # Under the last step that is done, so that a resumed run keeps it.
            monitor.log(*metrics, step=max(0, self.step - 1), epoch=epoch)
            first = metrics[:4]  # a line for a person; all are in the log
            said = ", ".join(f"{m.key} {m.value:.4g} {m.unit}".rstrip() for m in first)
            monitor.message(f"epoch {epoch}: {said}")
        if self._after_evaluation is not None and not self.finished:
            self._after_evaluation(epoch, lambda: bool(stopped()))
        return_freed_memory()
        self.heartbeat.update(state="training")
        self.told.restart(self.step)
