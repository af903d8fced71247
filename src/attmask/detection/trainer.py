"""The training of a detector in the loop."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils.data import Dataset

from attmask.data.coco import BoxedImages
from attmask.data.source import Source
from attmask.dense.trainer import DenseTrainer
from attmask.detection.augment import DetectAugment
from attmask.detection.batch import DetectBatch, DetectBatchMaker
from attmask.detection.config import DetectConfig
from attmask.errors import UserError
from attmask.heartbeat import Heartbeat
from attmask.models.backbone import Backbone
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import Instances
from attmask.tuning.start import StartingPoint
from attmask.watch import Watch


class DetectTrainer(DenseTrainer[DetectConfig, DetectBatch, Detector]):
    """A training of detection and instance segmentation."""

    def __init__(
        self,
        config: DetectConfig,
        images: BoxedImages,
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
        return self.images.names

    def _about(self) -> dict[str, object]:
        return {
            **super()._about(),
            "category_ids": list(self.images.category_ids),
            "has_masks": self.images.has_masks,
        }

    def _maker(
        self, source: Source, reading: Int[Tensor, "workers 2"], first_image: int
    ) -> Dataset[DetectBatch | UserError]:
        config = self.config
        return DetectBatchMaker(
            self.images,
            config.data,
            DetectAugment(config.augment, config.data),
            self.start.backbone.patch_size,
            config.seed,
            reading,
            first_image,
        )

    def _network(self, backbone: Backbone) -> Detector:
        network = Detector(backbone, len(self.images.names), self.config.head)
        network.cascade.learns_masks = self.images.has_masks
        return network

    def _truth_of(self, images: Float[Tensor, "B C height width"]) -> tuple[Instances, ...]:
        """One object an image, as large as the image."""
        _, _, height, width = images.shape
        box = torch.tensor([[0.0, 0.0, float(width), float(height)]], device=images.device)
        label = torch.zeros(1, dtype=torch.int64, device=images.device)
        mask = torch.ones(1, height, width, dtype=torch.uint8, device=images.device)
        return tuple(Instances(box, label, mask, (height, width)) for _ in images)

    def _watch(self) -> Watch:
        return Watch((), warmup_epochs=0.0)  # a loss of many parts has no value of mere guessing
