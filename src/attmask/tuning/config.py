"""The settings that all fine-tunings have: the starting point, the optimiser, the selection."""

from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

from pydantic import field_validator

from attmask.data.stores.splits import SPLITS, TRAIN
from attmask.optim import OptimConfig
from attmask.run_config import RunConfig
from attmask.settings import Config, setting

if TYPE_CHECKING:
    from typing_extensions import Self


class StartConfig(Config):
    """The backbone that training starts from."""

    start: str = setting("", "the checkpoint that the backbone is taken from", max_length=4096)
    drop_path: float = setting(
        0.1, "drop path of the last block, rising over depth", paper="0.1", ge=0, lt=1
    )


class TunedOptimConfig(OptimConfig):
    """The optimiser."""

    clip: float | None = setting(
        None,
        "largest gradient norm of each parameter tensor by itself (null: none)",
        paper="null",
        gt=0,
    )
    weight_decay: float = setting(0.05, "weight decay, also of positions", paper="0.05", ge=0)
    layer_decay: float = setting(
        1.0,
        "factor of the learning rate from a block to the one before",
        paper="1, ImageNet: 0.75",
        gt=0,
        le=1,
    )
    no_decay: tuple[str, ...] = setting(
        (), "tensors of timm's ViT without weight decay, beside biases and norms", paper="[]"
    )


class SelectionConfig(Config):
    """Which images are trained on and evaluated, how often, and when training ends early."""

    train: tuple[Literal["train", "val", "test"], ...] = setting(
        ("train",), "splits that are trained on", paper="[train], Flowers: [train, val]"
    )
    split: Literal["auto", "val", "test"] = setting(
        "auto", "split that is evaluated on the way (auto: val, else a part of train)", paper="test"
    )
    holdout: float = setting(
        0.15, "part of train that is evaluated where there is no other split", gt=0, lt=1
    )
    every_epochs: int = setting(50, "epochs between two evaluations", paper="50", ge=1)
    patience: int | None = setting(
        None,
        "evaluations without a gain after which training ends (null: never)",
        operational=True,
        ge=1,
    )

    @field_validator("train")
    @classmethod
    def _with_train(cls, splits: tuple[str, ...]) -> tuple[str, ...]:
        if TRAIN not in splits or len(set(splits)) < len(splits):
            raise ValueError(f"{list(splits)} must have train, and each split once")
        return splits

    def problem(self) -> str | None:
        """What is wrong with the choice of splits."""
        if self.split not in self.train:
            return None
        return (
            f"selection.split={self.split} is trained on too (selection.train); use another of "
            f"{', '.join(SPLITS)}"
        )


class TunedConfig(RunConfig):
    """What all fine-tunings have; each kind adds its own groups, in its own order."""

    COMMAND: ClassVar[str] = "finetune"

    if TYPE_CHECKING:
        network: StartConfig
        selection: SelectionConfig

    @property
    def image_size(self) -> int | None:
        """The side of the training crops; None if it is not set, or if sizes vary."""
        return None

    def with_image_size(self, size: int | None) -> "Self":
        """The settings for crops of this size, unless they have one."""
        return self


AnyTuned = TypeVar("AnyTuned", bound=TunedConfig)
