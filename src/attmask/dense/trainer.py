"""Dense prediction in the loop: a network that turns images and their truth into named losses."""

import logging
from abc import abstractmethod
from typing import Any, Generic, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.data import Dataset

from attmask import distributed
from attmask.data.feeding import BatchLoader, new_reading
from attmask.data.loader import EpochOrder, share_of_batch
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source
from attmask.dense.config import AnyDense
from attmask.dense.schedules import DenseSchedules
from attmask.dense.statistics import Statistics
from attmask.dense.step import DenseBatch, DenseReport, compute_gradients, update_
from attmask.engine import small_images
from attmask.errors import UserError
from attmask.loop import Trained
from attmask.models.backbone import Backbone
from attmask.schedules import Now
from attmask.tuning.optim import build_optimizer
from attmask.tuning.trainer import TuningLoop
from attmask.tuning.tuner import AnyNetwork, Tuner
from attmask.update import Update

log = logging.getLogger(__name__)

AnyBatchType = TypeVar("AnyBatchType", bound=DenseBatch)


class DenseTrainer(
    TuningLoop[AnyDense, AnyBatchType, Now, AnyNetwork],
    Generic[AnyDense, AnyBatchType, AnyNetwork],
):
    """A training of dense prediction."""

    @abstractmethod
    def _maker(
        self, source: Source, reading: Int[Tensor, "workers 2"], first_image: int
    ) -> Dataset[AnyBatchType | UserError]:
        """Makes the batches of this process."""

    @abstractmethod
    def _network(self, backbone: Backbone) -> AnyNetwork:
        """The backbone with an untrained head."""

    @abstractmethod
    def _truth_of(self, images: Float[Tensor, "B C height width"]) -> Any:
        """Any truth that the losses of these images accept."""

    def _trained_on(self, source: Source) -> Source:
        self.source = source  # divided already, together with what is to be predicted
        return source

    def _load(self, source: Source, quarantine: Quarantine) -> BatchLoader[AnyBatchType]:
        config = self.config
        batch = config.train.batch_size
        ours = share_of_batch(
            len(source), batch, rank=distributed.rank(), world=distributed.world_size()
        )
        reading = new_reading(self.workers)
        return BatchLoader(
            source,
            self._maker(source, reading, ours.start),
            EpochOrder(source, config.data.order, batch, config.seed, ours),
            steps_per_epoch=len(source) // batch,
            reading=reading,
            quarantine=quarantine,
            workers=self.workers,
        )

    def _timetable(self, config: AnyDense) -> DenseSchedules:
        return DenseSchedules(
            config.schedule,
            steps_per_epoch=self.loader.steps_per_epoch,
            batch_size=config.train.batch_size,
        )

    def _build(self) -> Trained:
        config = self.config
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            network = self._network(self.start.backbone).train()
        if config.train.recompute:
            self.start.backbone.recompute_blocks()
        if config.train.compile:
            self.start.backbone.compile_blocks()
        network = self._with_shared_statistics(network)
        self.tuner = Tuner(
            network,
            drop_path=config.network.drop_path,
            ema=config.schedule.ema,
            seed=config.seed,
        )
        statistics = Statistics(network)
        images = small_images(self.start.backbone).to(self.device)
        truth = self._truth_of(images)
        self._attach_engine_(lambda called: _sum_of(called(images, truth)))
        statistics.restore_()  # what the engine has shown the network were no images
        return Trained(self.tuner, network, build_optimizer(network, config.optim))

    def _with_shared_statistics(self, network: AnyNetwork) -> AnyNetwork:
        """Batch norm over all processes; on a CPU, where PyTorch has none, each has its own."""
        if distributed.world_size() == 1:
            return network
        if self.device.type == "cuda":
            shared: AnyNetwork = nn.SyncBatchNorm.convert_sync_batchnorm(network)
            return shared
        if distributed.is_main():
            log.info("batch norm: on a CPU, each process normalises by its own images")
        return network

    def _less_memory(self) -> str:
        return (
            "train.recompute=true, which changes only memory and time, or smaller images or a "
            "smaller train.batch_size"
        )

    def _learn_from(
        self, batch: AnyBatchType, now: Now, *, observe: bool
    ) -> tuple[DenseReport, Update]:
        config, parts = self.config, (self.tuner, self.optimizer)
        statistics = Statistics(self.tuner.network)
        with self._fitting_into_memory():
            report = compute_gradients(
                *parts, batch, now, self.precision, accumulate=config.train.accumulate
            )
            with self._in_update():
                update = update_(
                    *parts,
                    report,
                    now,
                    self.precision,
                    statistics,
                    weight_decay=config.optim.weight_decay,
                    clip=config.optim.clip,
                )
        return report, update


def _sum_of(losses: dict[str, Tensor]) -> Tensor:
    return torch.stack(list(losses.values())).sum()
