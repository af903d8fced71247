"""The settings of a fine-tuning run, checked together."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import field_validator, model_validator
from timm.data.auto_augment import rand_augment_transform

from attmask.checkpoint import CheckpointConfig
from attmask.data.config import DataConfig
from attmask.monitor import MonitorConfig
from attmask.run_config import TrainConfig, batch_problems, warmup_problems
from attmask.schedules import LengthConfig
from attmask.settings import Config, setting
from attmask.tuning.config import SelectionConfig, StartConfig, TunedConfig, TunedOptimConfig
from attmask.wording import counted


class NetworkConfig(StartConfig):
    """The backbone that training starts from, and the classifier on top of it."""

    token: Literal["cls", "gap", "cls+gap"] = setting(
        "cls", "input of the classifier: [CLS], the mean of the patches, or both", paper="cls"
    )
    head_scale: float = setting(
        1.0, "factor of the initial weights of the classifier", paper="1, ImageNet: 0.001", gt=0
    )


class AugmentConfig(Config):
    """The random changes of training images, made by timm."""

    size: int | None = setting(
        None, "side of the crops in pixels (null: the network's own)", paper="224", ge=1, le=4096
    )
    scale: tuple[float, float] = setting(
        (0.08, 1.0), "share of the image in a crop: from, to", paper="[0.08, 1]"
    )
    ratio: tuple[float, float] = setting(
        (0.75, 4 / 3), "width / height of a crop: from, to", paper="[3/4, 4/3]"
    )
    flip: float = setting(0.5, "probability of a horizontal flip", paper="0.5", ge=0, le=1)
    vertical_flip: float = setting(0.0, "probability of a vertical flip", paper="0", ge=0, le=1)
    auto_augment: str | None = setting(
        "rand-m9-mstd0.5-inc1",
        "timm's name of a RandAugment policy (null: colour jitter instead)",
        paper="rand-m9-mstd0.5-inc1",
        max_length=100,
    )
    color_jitter: float = setting(
        0.4, "strength of colour jitter, where there is no auto_augment", paper="0.4", ge=0, le=1
    )
    interpolation: Literal["bicubic", "bilinear", "random"] = setting(
        "bicubic", "how crops are resized", paper="bicubic"
    )
    erasing: float = setting(0.25, "probability of random erasing", paper="0.25", ge=0, le=1)
    mixup: float = setting(0.8, "alpha of mixup (0: none)", paper="0.8", ge=0, le=100)
    cutmix: float = setting(1.0, "alpha of CutMix (0: none)", paper="1", ge=0, le=100)
    mix_probability: float = setting(
        1.0, "share of the batches that are mixed", paper="1", ge=0, le=1
    )
    mix_switch: float = setting(
        0.5,
        "share of the mixed batches with CutMix, the others with mixup",
        paper="0.5",
        ge=0,
        le=1,
    )
    smoothing: float = setting(0.1, "label smoothing", paper="0.1", ge=0, lt=1)
    repeats: int = setting(
        1, "augmented copies of each drawn image in an epoch", paper="3, ImageNet: 1", ge=1, le=100
    )

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with each other."""
        return self.mix_probability > 0 and (self.mixup > 0 or self.cutmix > 0)

    @field_validator("scale", "ratio")
    @classmethod
    def _rising(cls, values: tuple[float, float]) -> tuple[float, float]:
        low, high = values
        if not 0 < low <= high:
            raise ValueError(f"{list(values)} does not rise from above 0; use e.g. [0.5, 1]")
        return values

    @field_validator("scale")
    @classmethod
    def _a_share(cls, scale: tuple[float, float]) -> tuple[float, float]:
        if scale[1] > 1:
            raise ValueError(f"{list(scale)} is more than the image; use at most 1")
        return scale

    @field_validator("auto_augment")
    @classmethod
    def _known_policy(cls, name: str | None) -> str | None:
        if name is not None:
            try:
                rand_augment_transform(name, {})
            except (AssertionError, ValueError, KeyError, IndexError) as fault:
                raise ValueError(
                    f"{name!r} is not a RandAugment policy of timm; use e.g. rand-m9-mstd0.5-inc1"
                ) from fault
        return name


class LabelsConfig(Config):
    """What the labels mean."""

    multi_label: bool = setting(
        False,
        "whether an image may have several labels, joined by |, or none",
        paper="false",
    )
    class_weights: Literal["none", "balanced"] = setting(
        "none", "weight of the classes in the loss: equal, or as 1 / number of images", paper="none"
    )


class FinetuneScheduleConfig(LengthConfig):
    """The length of training and the learning rate."""

    epochs: int = setting(500, "passes over the images", paper="500, Flowers 1000", ge=1)
    lr: float = setting(7.5e-6, "learning rate for lr_batch images a step", paper="7.5e-6", gt=0)
    lr_batch: int = setting(
        512, "the learning rate is scaled by batch_size / lr_batch", paper="512", ge=1
    )
    lr_final: float = setting(1e-5, "learning rate at the end", paper="1e-5", ge=0)
    lr_warmup_epochs: float = setting(5, "epochs of linear warm-up", paper="5", ge=0)
    lr_warmup_start: float = setting(
        1e-6, "learning rate at the start of the warm-up", paper="1e-6", ge=0
    )
    lr_changes: Literal["epoch", "step"] = setting(
        "epoch", "how often the learning rate changes", paper="epoch, ImageNet: step"
    )
    freeze_backbone_epochs: int = setting(
        0, "first epochs, in which the classifier alone is trained", paper="0", ge=0
    )
    frozen_lr: float | None = setting(
        None,
        "learning rate of the classifier in these epochs, for lr_batch images (null: lr)",
        paper="null",
        gt=0,
    )
    ema: float | None = setting(
        None,
        "decay of a moving average of the weights, which is evaluated then (null: none)",
        paper="null",
        ge=0,
        lt=1,
    )


class FinetuneConfig(TunedConfig):
    """Everything that describes one fine-tuning run."""

    KIND: ClassVar[str] = "finetune"
    ABOUT: ClassVar[str] = "classes of images"

    kind: Literal["finetune"] = setting("finetune", "what is trained")
    seed: int = setting(0, "random seed of classifier, augmentation and order", ge=0, lt=2**63)
    network: NetworkConfig = setting(NetworkConfig(), "backbone and classifier")
    data: DataConfig = setting(DataConfig(), "the images")
    labels: LabelsConfig = setting(LabelsConfig(), "what the labels mean")
    augment: AugmentConfig = setting(AugmentConfig(), "random changes of the training images")
    schedule: FinetuneScheduleConfig = setting(
        FinetuneScheduleConfig(), "length of training, learning rate"
    )
    optim: TunedOptimConfig = setting(TunedOptimConfig(), "the optimiser")
    selection: SelectionConfig = setting(
        SelectionConfig(), "which images are trained on and evaluated, and when training ends"
    )
    train: TrainConfig = setting(TrainConfig(batch_size=900), "how the steps are computed")
    checkpoint: CheckpointConfig = setting(
        CheckpointConfig(), "how often to save, and how many checkpoints to keep"
    )
    monitor: MonitorConfig = setting(MonitorConfig(), "logging during training")

    @property
    def image_size(self) -> int | None:
        """The side of the training crops."""
        return self.augment.size

    def with_image_size(self, size: int | None) -> "FinetuneConfig":
        """The settings for crops of this size, unless they have one."""
        augment = self.augment.model_copy(update={"size": self.augment.size or size})
        return self.model_copy(update={"augment": augment})

    @model_validator(mode="after")
    def _fits_together(self) -> "FinetuneConfig":
        problems = [*warmup_problems(self), *batch_problems(self), *_problems(self)]
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _epochs(count: int) -> str:
    return counted(count, "epoch")


def _problems(config: FinetuneConfig) -> Iterator[str]:
    augment, frozen = config.augment, config.schedule.freeze_backbone_epochs
    if (problem := config.selection.problem()) is not None:
        yield problem
    epochs, warmup = config.schedule.epochs, config.schedule.lr_warmup_epochs
    if frozen >= epochs:
        yield (
            f"schedule.freeze_backbone_epochs={frozen} leaves none of {epochs} epochs for the "
            "backbone; use fewer, or attmask evaluate RUN linear"
        )
    elif frozen and frozen + warmup > epochs >= warmup:
        yield (
            f"schedule.lr_warmup_epochs={warmup:g} is longer than the {_epochs(epochs - frozen)} "
            f"after those of a frozen backbone; use at most {epochs - frozen}"
        )
    if config.labels.multi_label and augment.mixes:
        yield (
            "labels.multi_label=true has no mixed images; set augment.mixup=0 and augment.cutmix=0"
        )
    if config.data.channels not in (1, 3) and (augment.auto_augment or augment.color_jitter):
        yield (
            f"timm recolours 1 or 3 channels, not {config.data.channels}; set "
            "augment.auto_augment=null and augment.color_jitter=0"
        )
    if config.schedule.ema is not None and config.train.sharding == "fsdp":
        yield "schedule.ema keeps whole weights; set schedule.ema=null or train.sharding=none"
    if augment.repeats > 1 and config.data.order != "shuffled":
        yield "augment.repeats draws images in its own order; set data.order=shuffled"
