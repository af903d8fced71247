"""Fine-tuning on classes: the loop around the step in which a classifier and its backbone learn."""

import torch

from attmask import distributed
from attmask.data.feeding import BatchLoader, new_reading
from attmask.data.loader import EpochOrder, share_of_batch
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.engine import small_images
from attmask.errors import UserError
from attmask.finetuning.augment import Augment
from attmask.finetuning.batch import LabelledBatch, LabelledBatchMaker, RepeatedOrder
from attmask.finetuning.classifier import Classifier
from attmask.finetuning.config import FinetuneConfig
from attmask.finetuning.labels import Classes, class_weights, guess_loss
from attmask.finetuning.schedules import FinetuneNow, FinetuneSchedules
from attmask.finetuning.step import (
    Finetuner,
    FinetuneReport,
    Targets,
    compute_gradients,
    update_,
)
from attmask.finetuning.warnings import watch_over
from attmask.heartbeat import Heartbeat
from attmask.loop import Trained
from attmask.tuning.optim import build_optimizer
from attmask.tuning.start import StartingPoint
from attmask.tuning.trainer import TuningLoop
from attmask.update import Update
from attmask.watch import Watch


class FinetuneTrainer(TuningLoop[FinetuneConfig, LabelledBatch, FinetuneNow, Classifier]):
    """A fine-tuning run on classes."""

    tuner: Finetuner

    def __init__(
        self,
        config: FinetuneConfig,
        source: Source,
        start: StartingPoint,
        classes: Classes,
        *,
        selects: str,
        heartbeat: Heartbeat,
        extend: bool = False,
    ) -> None:
        self.classes = classes
        super().__init__(config, source, start, selects=selects, heartbeat=heartbeat, extend=extend)

    def _load(self, source: Source, quarantine: Quarantine) -> BatchLoader[LabelledBatch]:
        config, rank, world = self.config, distributed.rank(), distributed.world_size()
        batch, repeats = config.train.batch_size, config.augment.repeats
        ours = share_of_batch(len(source), batch, rank=rank, world=world)
        share = ours.stop - ours.start
        if config.augment.mixes and share % 2:
            raise UserError(
                f"each process has {share} images of a batch, and mixing takes an even number; use "
                f"train.batch_size={world * (share + 1)}, or augment.mixup=0 and augment.cutmix=0"
            )
        order: RepeatedOrder | EpochOrder = EpochOrder(
            source, config.data.order, batch, config.seed, ours
        )
        steps = len(source) // batch
        if repeats > 1:
            order = RepeatedOrder(len(source), repeats, share, config.seed, rank, world)
            steps = order.steps
            if not steps:
                raise UserError(
                    f"repeated augmentation draws 256 images at a time, and of {len(source)} too "
                    f"few are left for a batch of {batch}; use augment.repeats=1 or a smaller "
                    "train.batch_size"
                )
        reading = new_reading(self.workers)
        augment = Augment(config.augment, config.data, size=self.start.image_size)
        return BatchLoader(
            source,
            LabelledBatchMaker(
                source, self.classes, config.data, augment, config.seed, reading, ours.start
            ),
            order,
            steps_per_epoch=steps,
            reading=reading,
            quarantine=quarantine,
            workers=self.workers,
        )

    def _timetable(self, config: FinetuneConfig) -> FinetuneSchedules:
        return FinetuneSchedules(
            config.schedule,
            steps_per_epoch=self.loader.steps_per_epoch,
            batch_size=config.train.batch_size,
        )

    def _build(self) -> Trained:
        config, classes = self.config, self.classes
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            network = Classifier(self.start.backbone, len(classes), config.network)
        if config.train.recompute:
            network.backbone.recompute_blocks()
        if config.train.compile:
            network.backbone.compile_blocks()
        weights = None
        if config.labels.class_weights == "balanced":
            weights = torch.from_numpy(class_weights(classes, self.source))
        self.tuner = Finetuner(
            network,
            drop_path=config.network.drop_path,
            class_weights=weights,
            multi_label=classes.multi_label,
            ema=config.schedule.ema,
            seed=config.seed,
        )
        images = small_images(network.backbone)
        self._attach_engine_(lambda called: called(images.to(self.device)).sum())
        self.targets = Targets(
            config.augment, len(classes), multi_label=classes.multi_label, seed=config.seed
        )
        return Trained(self.tuner, network, build_optimizer(network, config.optim))

    def _watch(self) -> Watch:
        weights = self.tuner.class_weights
        guess = guess_loss(
            self.classes,
            self.source,
            None if weights is None else weights.cpu().numpy(),
            self.config.augment.smoothing,
        )
        return watch_over(self.config, guess)

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return tuple(self.classes.names)

    def _about(self) -> dict[str, object]:
        return {**super()._about(), "multi_label": self.classes.multi_label}

    @property
    def _patient_from_epoch(self) -> int:
        return self.config.schedule.freeze_backbone_epochs

    def _learn_from(
        self, batch: LabelledBatch, now: FinetuneNow, *, observe: bool
    ) -> tuple[FinetuneReport, Update]:
        config, parts = self.config, (self.tuner, self.optimizer)
        with self._fitting_into_memory():
            report = compute_gradients(
                *parts,
                batch,
                self.targets,
                now,
                self.precision,
                accumulate=config.train.accumulate,
            )
            with self._in_update():
                update = update_(
                    *parts,
                    report,
                    now,
                    self.precision,
                    weight_decay=config.optim.weight_decay,
                    clip=config.optim.clip,
                )
        return report, update
