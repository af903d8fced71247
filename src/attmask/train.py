"""Pre-training: the loop around the step in which a student learns from its teacher."""

import logging
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from attmask import atomic, checkpoint, distributed
from attmask.adaptation.guard import Evaluation, Guard, evaluation, evaluations
from attmask.adaptation.lora import merged
from attmask.adaptation.start import StartingWeights
from attmask.adaptation.trained import build_adapting_optimizer
from attmask.agreement import together
from attmask.checkpoint import BEST, WEIGHTS, Checkpoint
from attmask.collapse import watch_over
from attmask.config import PretrainConfig
from attmask.data.batch import Batch
from attmask.data.loader import Loader
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.subset import trained_on
from attmask.data.views import Views
from attmask.engine import attach_engine_
from attmask.heartbeat import Heartbeat
from attmask.loop import Loop, Trained
from attmask.metric import Metric, values_by_key
from attmask.models.backbone import Backbone
from attmask.monitor import Monitor, read_metrics
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.schedules import Schedules, StepSchedule
from attmask.step import StepReport, compute_gradients, update_
from attmask.update import Update
from attmask.watch import Watch

log = logging.getLogger(__name__)


class Trainer(Loop[PretrainConfig, Batch, StepSchedule]):
    """A pre-training run."""

    def __init__(
        self,
        config: PretrainConfig,
        source: Source,
        run: Path,
        *,
        heartbeat: Heartbeat | None = None,
        extend: bool = False,
        start: StartingWeights | None = None,
    ) -> None:
        """`start` has the weights of `config.init`; the backbone is drawn if it is None."""
        self.start = start
        self.guard = Guard(config.guard)
        super().__init__(config, source, run, heartbeat=heartbeat, extend=extend)

    def _trained_on(self, source: Source) -> Source:
        count = self.config.data.per_class
        if count is not None and source.labels is None and distributed.is_main():
            log.warning(
                "the images have no labels, so data.per_class=%d does not apply: all %d are used",
                count,
                len(source),
            )
        return trained_on(source, self.config.data)

    def _load(self, source: Source, quarantine: Quarantine) -> Loader:
        config = self.config
        return Loader(
            source,
            config.data,
            config.views,
            batch_size=config.train.batch_size,
            seed=config.seed,
            workers=self.workers,
            quarantine=quarantine,
            rank=distributed.rank(),
            world=distributed.world_size(),
        )

    def _timetable(self, config: PretrainConfig) -> Schedules:
        return Schedules(
            config.schedule,
            steps_per_epoch=self.loader.steps_per_epoch,
            batch_size=config.train.batch_size,
        )

    def _build(self) -> Trained:
        config = self.config
        self.distiller = build_distiller(config, self.start)
        backbones = self.distiller.student.backbone, self.distiller.teacher.backbone
        if config.train.recompute:
            backbones[0].recompute_blocks()
        if config.train.compile:
            for backbone in backbones:
                backbone.compile_blocks()
        attach_engine_(self.distiller, config.train.sharding, self.device)
        student = self.distiller.student
        if self.start is None and config.adapt.is_plain:
            return Trained(self.distiller, student, build_optimizer(student, config.optim))
        optimizer = build_adapting_optimizer(student, config.optim, config.adapt)
        return Trained(self.distiller, student, optimizer)

    def _about(self) -> dict[str, object]:
        if self.start is None:
            return {}
        return {"blueprint": self.start.blueprint.model_dump(mode="json")}

    @property
    def _is_guarded(self) -> bool:
        return self.config.guard.patience is not None

    def _look_back(self) -> None:
        """Take the evaluations so far from the log: they decide whether training is over."""
        if not self._is_guarded:
            return
        with together():
            found = []
            if distributed.is_main():
                kept = checkpoint.newest(self.run / BEST)
                if kept is not None and (self.step == 0 or checkpoint.step_of(kept) > self.step):
                    atomic.remove_folder(kept)  # of steps that are trained again
                logged = evaluations(read_metrics(self.run)) if self.step else []
                found = [each for each in logged if each.epoch <= self.epoch]
        self._guard_with(distributed.from_main(found))
        self.ended_early = self.guard.is_over

    def _guard_with(self, found: list[Evaluation]) -> None:
        """Hold evaluations against each other; only a network whose weights exist can be the best.

        Where RUN/best is lost, these are the starting weights, if the run has any.
        """
        kept = None
        with together():
            if distributed.is_main():
                if self._is_best_lost() and self.step:
                    self._keep_start_as_best(found)
                kept = checkpoint.newest(self.run / BEST)
        step = distributed.from_main(None if kept is None else checkpoint.step_of(kept))
        epochs = [] if step is None else [-(-step // self.schedules.steps_per_epoch)]
        self.guard = Guard(self.config.guard, found, epochs)

    def _is_best_lost(self) -> bool:
        return checkpoint.newest(self.run / BEST) is None

    def _keep_start_as_best(self, found: list[Evaluation]) -> None:
        first = next((each for each in found if each.epoch == 0), None)
        if self.start is None or first is None:
            return
        weights = build_distiller(self.config, self.start).state_dict()
        self._write_best(0, weights, dict(first.values))

    def _see_evaluation(self, metrics: tuple[Metric, ...], monitor: Monitor) -> None:
        """Keep the best network, warn of features that become worse, and end where they stay so."""
        self.skipped.settle()
        new = evaluation(self.epoch, values_by_key(metrics))
        if not self._is_guarded or new is None or self.skipped.in_a_row:
            return
        if distributed.from_main(self._is_best_lost()):
            self._guard_with(self.guard.found)
        self.guard.see(new)
        if self.guard.best is new:
            self._keep_best(metrics)
        self.told.find(self.guard.warning(), self.step)
        self.ended_early = self.guard.is_over

    def _keep_best(self, metrics: tuple[Metric, ...]) -> None:
        """Write the teacher, with updates of low rank added to its weights."""
        weights = self.state.whole_weights()
        with together():
            if distributed.is_main():
                self._write_best(self.step, weights, values_by_key(metrics))

    def _write_best(
        self, step: int, weights: Mapping[str, Tensor], metrics: Mapping[str, float | None]
    ) -> None:
        kept = ("teacher.", "cls_centre.", "patch_centre.")
        found = {name: t for name, t in merged(weights).items() if name.startswith(kept)}
        info = {
            **self._about(),
            "images": self.folder.images,
            "metrics": metrics,
            "config": self.config.model_dump(mode="json"),
        }
        checkpoint.save(self.run / BEST, Checkpoint(step, {WEIGHTS: found}, info), keep=1)

    def _closing_line(self) -> str:
        return self.guard.verdict() if self._is_guarded and self.guard.found else ""

    def _watch(self) -> Watch:
        return watch_over(self.config)

    @property
    def _backbone(self) -> nn.Module:
        return self.distiller.student.backbone

    @property
    def _evaluated_every_epochs(self) -> int:
        return self.config.monitor.knn_every_epochs

    @property
    def teacher(self) -> Backbone:
        """The backbone that is kept and evaluated."""
        return self.distiller.teacher.backbone

    @property
    def _evaluated(self) -> Backbone:
        return self.teacher

    def _learn_from(
        self, batch: Batch, now: StepSchedule, *, observe: bool
    ) -> tuple[StepReport, Update]:
        views = batch.on(self.device).normalise(self.config.data.mean, self.config.data.std)
        return self.learn(views, now, observe=observe)

    def learn(
        self, views: Views, now: StepSchedule, *, observe: bool = False
    ) -> tuple[StepReport, Update]:
        """One training step with the run's settings; the caller counts it.

        A step that fails before its update leaves a state that can be saved.
        """
        config, parts = self.config, (self.distiller, self.optimizer)
        with self._fitting_into_memory():
            report = compute_gradients(
                *parts,
                views,
                now,
                self.precision,
                accumulate=config.train.accumulate,
                observe=observe,
            )
            with self._in_update():
                update = update_(*parts, report, now, self.precision, clip=config.optim.clip)
        return report, update
