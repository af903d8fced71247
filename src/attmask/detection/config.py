"""The settings of a training of detection, checked together."""

from typing import ClassVar, Literal

from pydantic import model_validator

from attmask.checkpoint import CheckpointConfig
from attmask.data.config import DataConfig
from attmask.dense.config import DenseConfig, DenseScheduleConfig, problems
from attmask.detection.augment import DetectAugmentConfig
from attmask.models.detection.config import DetectorConfig
from attmask.monitor import MonitorConfig
from attmask.run_config import TrainConfig
from attmask.settings import Config, setting
from attmask.tuning.config import SelectionConfig, StartConfig, TunedOptimConfig


class ShownConfig(Config):
    """The size in which whole images are shown in evaluations and predictions."""

    short_side: int = setting(800, "length of the shorter side in pixels", paper="800", ge=1)
    long_side: int = setting(1333, "the most pixels of the longer side", paper="1333", ge=1)

    @model_validator(mode="after")
    def _in_order(self) -> "ShownConfig":
        if self.short_side > self.long_side:
            raise ValueError(
                f"short_side={self.short_side} is more than long_side={self.long_side}; swap them"
            )
        return self


class DetectConfig(DenseConfig):
    """Everything that describes one training of detection and instance segmentation."""

    KIND: ClassVar[str] = "detect"
    ABOUT: ClassVar[str] = "boxes and masks of objects (Cascade Mask R-CNN)"

    kind: Literal["detect"] = setting("detect", "what is trained")
    seed: int = setting(0, "random seed of heads, augmentation and order", ge=0, lt=2**63)
    network: StartConfig = setting(StartConfig(), "the backbone")
    head: DetectorConfig = setting(DetectorConfig(), "everything on top of the backbone")
    data: DataConfig = setting(DataConfig(), "the images")
    augment: DetectAugmentConfig = setting(
        DetectAugmentConfig(), "random changes of the training images"
    )
    shown: ShownConfig = setting(ShownConfig(), "the size in which whole images are shown")
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

    @model_validator(mode="after")
    def _fits_together(self) -> "DetectConfig":
        if found := list(problems(self)):
            raise ValueError("; ".join(found))
        return self
