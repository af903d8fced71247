"""The settings of a training of segmentation, checked together."""

from typing import ClassVar, Literal

from pydantic import model_validator

from attmask.checkpoint import CheckpointConfig
from attmask.data.config import DataConfig
from attmask.data.masks import MasksConfig
from attmask.dense.config import DenseConfig, DenseScheduleConfig, problems
from attmask.evaluation.segmentation.inference import InferenceConfig
from attmask.models.upernet import SegmenterConfig
from attmask.monitor import MonitorConfig
from attmask.run_config import TrainConfig
from attmask.segmentation.augment import SegmentAugmentConfig
from attmask.settings import setting
from attmask.tuning.config import SelectionConfig, StartConfig, TunedOptimConfig


class SegmentConfig(DenseConfig):
    """Everything that describes one training of semantic segmentation."""

    KIND: ClassVar[str] = "segment"
    ABOUT: ClassVar[str] = "classes of pixels (UperNet)"

    kind: Literal["segment"] = setting("segment", "what is trained")
    seed: int = setting(0, "random seed of heads, augmentation and order", ge=0, lt=2**63)
    network: StartConfig = setting(StartConfig(), "the backbone")
    head: SegmenterConfig = setting(SegmenterConfig(), "the heads")
    data: DataConfig = setting(DataConfig(), "the images")
    masks: MasksConfig = setting(MasksConfig(), "what the values of masks mean")
    augment: SegmentAugmentConfig = setting(
        SegmentAugmentConfig(), "random changes of the training images"
    )
    inference: InferenceConfig = setting(InferenceConfig(), "how whole images are segmented")
    schedule: DenseScheduleConfig = setting(
        DenseScheduleConfig(), "length of training, learning rate"
    )
    optim: TunedOptimConfig = setting(TunedOptimConfig(), "the optimiser")
    selection: SelectionConfig = setting(
        SelectionConfig(), "which images are trained on and evaluated, and when training ends"
    )
    train: TrainConfig = setting(TrainConfig(batch_size=16), "how the steps are computed")
    checkpoint: CheckpointConfig = setting(
        CheckpointConfig(), "how often to save, and how many checkpoints to keep"
    )
    monitor: MonitorConfig = setting(MonitorConfig(), "logging during training")

    @property
    def image_size(self) -> int | None:
        """The side of the training crops."""
        return self.augment.size

    def with_image_size(self, size: int | None) -> "SegmentConfig":
        """The settings for crops of this size, unless they have one."""
        augment = self.augment.model_copy(update={"size": self.augment.size or size})
        return self.model_copy(update={"augment": augment})

    @model_validator(mode="after")
    def _fits_together(self) -> "SegmentConfig":
        if found := list(problems(self)):
            raise ValueError("; ".join(found))
        return self
