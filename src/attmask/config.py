"""The settings of a pre-training run, checked together."""

from collections.abc import Iterator
from typing import ClassVar

from pydantic import model_validator

from attmask.adaptation.config import AdaptConfig, GuardConfig
from attmask.checkpoint import CheckpointConfig
from attmask.data.config import DataConfig
from attmask.data.views import ViewsConfig
from attmask.losses import LossConfig
from attmask.masking import MaskingConfig
from attmask.models.backbone import BackboneConfig
from attmask.models.heads import HeadConfig
from attmask.monitor import PretrainMonitorConfig
from attmask.optim import OptimConfig
from attmask.run_config import RunConfig, TrainConfig, batch_problems, warmup_problems
from attmask.schedules import ScheduleConfig
from attmask.settings import setting


class PretrainConfig(RunConfig):
    """Everything that describes one pre-training run."""

    KIND: ClassVar[str] = "pretrain"
    COMMAND: ClassVar[str] = "pretrain"
    ABOUT: ClassVar[str] = "without labels"
    ADDED_LATER: ClassVar[frozenset[str]] = frozenset({"init", "adapt", "guard"})

    seed: int = setting(0, "random seed of weights, views, masks and drop path", ge=0, lt=2**63)
    init: str | None = setting(
        None,
        "weights that the backbone starts from: a run, a weights file, a Hugging Face directory, "
        "hf-hub:OWNER/NAME or timm:NAME (null: drawn by the seed); backbone, channels, mean and "
        "std follow them",
        min_length=1,
        max_length=4096,
    )
    data: DataConfig = setting(DataConfig(), "the images")
    views: ViewsConfig = setting(ViewsConfig(), "the crops of an image and their augmentation")
    backbone: BackboneConfig = setting(BackboneConfig(), "the vision transformer")
    head: HeadConfig = setting(HeadConfig(), "the projection head")
    masking: MaskingConfig = setting(MaskingConfig(), "which patches are hidden from the student")
    loss: LossConfig = setting(LossConfig(), "the distillation losses")
    schedule: ScheduleConfig = setting(
        ScheduleConfig(), "schedules of learning rate, weight decay, momentum and temperatures"
    )
    optim: OptimConfig = setting(OptimConfig(), "the optimiser")
    adapt: AdaptConfig = setting(
        AdaptConfig(), "what of the weights that training starts from is trained, and how fast"
    )
    guard: GuardConfig = setting(
        GuardConfig(), "when training ends because features are worse than at the start"
    )
    train: TrainConfig = setting(TrainConfig(), "how the steps are computed")
    checkpoint: CheckpointConfig = setting(
        CheckpointConfig(), "how often to save, and how many checkpoints to keep"
    )
    monitor: PretrainMonitorConfig = setting(
        PretrainMonitorConfig(), "logging and evaluation during training"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainConfig":
        # What depends on the backbone is checked when it is known.
        of_backbone = () if self.init is not None else backbone_problems(self)
        problems = [
            *of_backbone,
            *warmup_problems(self, ("lr", "cls_temperature", "patch_temperature")),
            *batch_problems(self),
            *_other_problems(self),
        ]
        if problems:
            raise ValueError("; ".join(problems))
        return self


def backbone_problems(config: PretrainConfig) -> Iterator[str]:
    """What does not fit the backbone."""
    patch = config.backbone.patch
    named = "backbone.name" if config.backbone.patch_size is None else "backbone.patch_size"
    sizes = {"views.global_size": config.views.global_size}
    if config.views.local_crops:
        sizes["views.local_size"] = config.views.local_size
    for key, size in sizes.items():
        if size % patch:
            below = size // patch * patch
            choice = f"{below} or {below + patch}" if below else f"{patch}"
            yield (
                f"{key}: image size {size} is not a multiple of patch size {patch}; use {choice}, "
                f"or another {named}"
            )
    layer, depth = config.masking.layer, config.backbone.depth
    if layer is not None and depth is not None and layer > depth:
        yield f"masking.layer={layer} is beyond the backbone's {depth} blocks; use 1 to {depth}"


def _other_problems(config: PretrainConfig) -> Iterator[str]:
    if config.loss.centring == "sinkhorn" and config.train.accumulate > 1:
        yield (
            "loss.centring=sinkhorn balances over the full batch, which cannot be split; "
            "use train.accumulate=1 or loss.centring=mean"
        )
    if config.guard.patience is not None and config.monitor.knn_every_epochs == 0:
        yield (
            "guard.patience needs evaluations, but monitor.knn_every_epochs=0 has none; use 1, or "
            "guard.patience=null"
        )
    frozen, epochs = config.schedule.freeze_backbone_epochs, config.schedule.epochs
    if frozen >= epochs:
        yield (
            f"schedule.freeze_backbone_epochs={frozen} leaves nothing of {epochs} epochs to train "
            f"the backbone in; use at most {epochs - 1}, or a larger schedule.epochs"
        )
    if config.adapt.lora_rank is not None and config.train.sharding == "fsdp":
        yield "adapt.lora_rank cannot be combined with train.sharding=fsdp; use train.sharding=none"
    if config.masking.strategy == "none" and config.loss.patch_weight > 0:
        # Probability 0 has no patch loss either, but it is a row of the paper (Table 9b).
        yield (
            "masking.strategy=none hides no patch for the patch loss; set loss.patch_weight=0 "
            "(DINO) or choose a strategy"
        )
