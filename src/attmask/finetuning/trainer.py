"""Fine-tuning: the loop around the step in which a classifier and its backbone learn labels."""

import torch
from torch import Tensor, nn

from attmask import atomic, checkpoint, distributed
from attmask.agreement import together
from attmask.checkpoint import WEIGHTS, Checkpoint
from attmask.data.feeding import BatchLoader, new_reading
from attmask.data.loader import EpochOrder, share_of_batch
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.data.subset import trained_on
from attmask.engine import mesh_of_all, replicated, shard_, sharded, small_images
from attmask.errors import UserError
from attmask.evaluation.loading import BEST
from attmask.finetuning.augment import Augment
from attmask.finetuning.batch import LabelledBatch, LabelledBatchMaker, RepeatedOrder
from attmask.finetuning.classifier import Classifier
from attmask.finetuning.config import FinetuneConfig
from attmask.finetuning.labels import Classes, class_weights, guess_loss
from attmask.finetuning.schedules import FinetuneNow, FinetuneSchedules
from attmask.finetuning.selection import (
    Evaluation,
    best_of,
    evaluations,
    is_exhausted,
    still_kept,
)
from attmask.finetuning.start import StartingPoint
from attmask.finetuning.step import (
    Finetuner,
    FinetuneReport,
    Targets,
    build_optimizer,
    compute_gradients,
    update_,
)
from attmask.finetuning.warnings import watch_over
from attmask.heartbeat import Heartbeat
from attmask.loop import Loop, Trained
from attmask.metric import Metric
from attmask.monitor import Monitor, read_metrics
from attmask.update import Update
from attmask.watch import Watch
from attmask.wording import counted


class FinetuneTrainer(Loop[FinetuneConfig, LabelledBatch, FinetuneNow]):
    """A fine-tuning run."""

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
        """`selects` is the key of the metric by which the best network is chosen."""
        self.start, self.classes, self.selects = start, classes, selects
        self.evaluations: list[Evaluation] = []
        super().__init__(config, source, start.run, heartbeat=heartbeat, extend=extend)

    def _trained_on(self, source: Source) -> Source:
        self.source = trained_on(source, self.config.data)
        return self.source

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
        self.finetuner = Finetuner(
            network,
            drop_path=config.network.drop_path,
            class_weights=weights,
            multi_label=classes.multi_label,
            ema=config.schedule.ema,
            seed=config.seed,
        )
        self._attach_engine_(network)
        self.targets = Targets(
            config.augment, len(classes), multi_label=classes.multi_label, seed=config.seed
        )
        return Trained(self.finetuner, network, build_optimizer(network, config.optim))

    def _attach_engine_(self, network: Classifier) -> None:
        """Move the network to the device, and share gradients between several processes."""
        several, sharding = distributed.world_size() > 1, self.config.train.sharding
        if several and sharding == "fsdp":
            shard_(network, mesh_of_all(self.device))
        self.finetuner.to(self.device)
        if several and sharding == "fsdp":
            self.finetuner.wrap(sharded(network))
        elif several:
            images = small_images(network.backbone)
            self.finetuner.wrap(replicated(network, lambda ddp: ddp(images).sum()))

    def _watch(self) -> Watch:
        weights = self.finetuner.class_weights
        guess = guess_loss(
            self.classes,
            self.source,
            None if weights is None else weights.cpu().numpy(),
            self.config.augment.smoothing,
        )
        return watch_over(self.config, guess)

    def _about(self) -> dict[str, object]:
        return {
            "classes": list(self.classes.names),
            "multi_label": self.classes.multi_label,
            "steps_per_epoch": self.loader.steps_per_epoch,
            "blueprint": self.start.blueprint.model_dump(mode="json"),
        }

    @property
    def _backbone(self) -> nn.Module:
        return self.finetuner.network.backbone

    @property
    def _evaluated(self) -> Classifier:
        return self.finetuner.evaluated

    @property
    def _evaluated_every_epochs(self) -> int:
        return self.config.selection.every_epochs

    def _learn_from(
        self, batch: LabelledBatch, now: FinetuneNow, *, observe: bool
    ) -> tuple[FinetuneReport, Update]:
        config, parts = self.config, (self.finetuner, self.optimizer)
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

    def _look_back(self) -> None:
        """Take the evaluations so far from the log and from the best network that is kept."""
        epoch = self.step // self.schedules.steps_per_epoch
        with together():
            found: list[Evaluation] = []
            if distributed.is_main() and self.step:
                kept = self._kept()
                logged = evaluations(read_metrics(self.run), self.selects)
                found = still_kept([each for each in logged if each.epoch <= epoch], kept)
        self.evaluations = distributed.from_main(found)
        self._decide()

    def _kept(self) -> Evaluation | None:
        """The evaluation of the best network; one of steps that are trained again is removed."""
        folder = checkpoint.newest(self.run / BEST)
        if folder is None:
            return None
        if checkpoint.step_of(folder) > self.step:
            atomic.remove_folder(folder)
            return None
        known = checkpoint.load(folder, only=())
        value = float(known.info["metrics"][self.selects])
        return Evaluation(known.step // self.schedules.steps_per_epoch, value)

    def _see_evaluation(self, metrics: tuple[Metric, ...], monitor: Monitor) -> None:
        """Keep the network if it is the best so far, and end where no gain is to be expected."""
        self.skipped.settle()
        if self.skipped.in_a_row:
            return  # the run may go back to before this step
        epoch = self.step // self.schedules.steps_per_epoch
        value = next(metric.value for metric in metrics if metric.key == self.selects)
        self.evaluations = [each for each in self.evaluations if each.epoch != epoch]
        self.evaluations.append(Evaluation(epoch, value))
        if best_of(self.evaluations).epoch == epoch:
            self._keep_best(metrics)
        self._decide()
        if self.ended_early:
            best = best_of(self.evaluations)
            patience = self.config.selection.patience or 0
            monitor.message(
                f"no gain in {counted(patience, 'evaluation')}: training ends at epoch {epoch}; "
                f"the best was {best.value:.2f} at epoch {best.epoch}"
            )

    def _decide(self) -> None:
        """End where no gain is to be expected; a run that was made longer gets another chance."""
        extended = [each.step for each in self.folder.history.extensions]
        since = max(extended, default=0) // self.schedules.steps_per_epoch
        since = max(since, self.config.schedule.freeze_backbone_epochs)
        patience = self.config.selection.patience
        self.ended_early = is_exhausted(self.evaluations, patience, since=since)

    def _keep_best(self, metrics: tuple[Metric, ...]) -> None:
        """Write the network that is evaluated, whole."""
        weights = self.state.whole_weights()
        prefix = "network." if self.finetuner.ema is None else "ema.module."
        with together():
            if distributed.is_main():
                found: dict[str, Tensor] = {
                    f"network.{name.removeprefix(prefix)}": tensor
                    for name, tensor in weights.items()
                    if name.startswith(prefix)
                }
                info = {
                    **self._about(),
                    "images": self.folder.images,
                    "metrics": {metric.key: metric.value for metric in metrics},
                    "config": self.config.model_dump(mode="json"),
                }
                checkpoint.save(
                    self.run / BEST, Checkpoint(self.step, {WEIGHTS: found}, info), keep=1
                )
