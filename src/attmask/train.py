"""Pre-training: the loop around the step in which a student learns from its teacher."""

import logging

from torch import nn

from attmask import distributed
from attmask.collapse import watch_over
from attmask.config import PretrainConfig
from attmask.data.batch import Batch
from attmask.data.loader import Loader
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.subset import trained_on
from attmask.data.views import Views
from attmask.engine import attach_engine_
from attmask.loop import Loop, Trained
from attmask.models.backbone import Backbone
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.schedules import Schedules, StepSchedule
from attmask.step import StepReport, compute_gradients, update_
from attmask.update import Update
from attmask.watch import Watch

log = logging.getLogger(__name__)


class Trainer(Loop[PretrainConfig, Batch, StepSchedule]):
    """A pre-training run."""

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
        self.distiller = build_distiller(config)
        backbones = self.distiller.student.backbone, self.distiller.teacher.backbone
        if config.train.recompute:
            backbones[0].recompute_blocks()
        if config.train.compile:
            for backbone in backbones:
                backbone.compile_blocks()
        attach_engine_(self.distiller, config.train.sharding, self.device)
        student = self.distiller.student
        return Trained(self.distiller, student, build_optimizer(student, config.optim))

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
