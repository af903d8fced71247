"""The training of a segmenter in the loop."""

import math

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor
from torch.utils.data import Dataset

from attmask.data.masks import MaskedImages
from attmask.data.source import Source
from attmask.dense.trainer import DenseTrainer
from attmask.errors import UserError
from attmask.heartbeat import Heartbeat
from attmask.models.backbone import Backbone
from attmask.models.upernet import Segmenter
from attmask.segmentation.augment import SegmentAugment
from attmask.segmentation.batch import SegmentBatch, SegmentBatchMaker
from attmask.segmentation.config import SegmentConfig
from attmask.tuning.start import StartingPoint
from attmask.watch import Rule, Watch

WORSE_THAN_GUESSING = 1.2
"""Loss as a share of that of a uniform guess."""


class SegmentTrainer(DenseTrainer[SegmentConfig, SegmentBatch, Segmenter]):
    """A training of semantic segmentation."""

    def __init__(
        self,
        config: SegmentConfig,
        images: MaskedImages,
        start: StartingPoint,
        *,
        selects: str,
        heartbeat: Heartbeat,
        extend: bool = False,
    ) -> None:
        self.images = images
        super().__init__(
            config, images.source, start, selects=selects, heartbeat=heartbeat, extend=extend
        )

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.images.classes.names

    def _about(self) -> dict[str, object]:
        return {**super()._about(), "values": list(self.images.classes.values)}

    def _maker(
        self, source: Source, reading: Int[Tensor, "workers 2"], first_image: int
    ) -> Dataset[SegmentBatch | UserError]:
        config = self.config
        augment = SegmentAugment(config.augment, config.data, size=self.start.image_size)
        return SegmentBatchMaker(
            self.images, config.data, augment, config.seed, reading, first_image
        )

    def _network(self, backbone: Backbone) -> Segmenter:
        return Segmenter(backbone, len(self.images.classes), self.config.head)

    def _truth_of(self, images: Float[Tensor, "B C H W"]) -> Int64[Tensor, "B H W"]:
        count, _, height, width = images.shape
        return torch.zeros(count, height, width, dtype=torch.int64, device=images.device)

    def _watch(self) -> Watch:
        loss, guess = "loss.decode", math.log(len(self.images.classes))
        lr = self.config.schedule.lr
        diverging = Rule(
            "diverging",
            (loss,),
            lambda values: values[loss] >= WORSE_THAN_GUESSING * guess,
            lambda values: (
                f"the segmenter is worse than guessing: its loss is {values[loss]:.2f} nats, that "
                f"of a uniform guess {guess:.2f}; lower schedule.lr (now {lr:g})"
            ),
        )
        warmup = self.config.schedule.lr_warmup_steps / self.loader.steps_per_epoch
        return Watch((diverging,), warmup_epochs=warmup)
