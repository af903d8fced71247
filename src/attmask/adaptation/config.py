"""The settings of a training that continues from given weights: what is trained, and the guard."""

from attmask.settings import Config, setting


class AdaptConfig(Config):
    """Which part of the backbone is trained, and at which learning rates."""

    backbone_lr: float = setting(
        1.0, "factor of the learning rate of the backbone; the heads have the whole", gt=0, le=1
    )
    layer_decay: float = setting(
        1.0, "factor of the learning rate from a block to the one before", gt=0, le=1
    )
    blocks: int | None = setting(
        None, "train only so many of the last blocks, and the final norm (null: all)", ge=1
    )
    lora_rank: int | None = setting(
        None,
        "train updates of this rank of the weights of attention instead of the weights (null: the "
        "weights themselves)",
        ge=1,
        le=2**12,
    )
    lora_alpha: float = setting(
        16.0, "scale of these updates, which are multiplied by alpha / rank", gt=0
    )
    lora_mlp: bool = setting(False, "have such updates of the weights of the MLPs too")

    @property
    def is_plain(self) -> bool:
        """Whether the whole backbone is trained at one rate, as from scratch."""
        return (
            self.backbone_lr == self.layer_decay == 1
            and self.blocks is None
            and self.lora_rank is None
        )


class GuardConfig(Config):
    """When a training ends because its features have become worse than those it started from."""

    patience: int | None = setting(
        None,
        "evaluations in a row with worse features than at the start, after which training ends "
        "(null: no guard)",
        operational=True,
        ge=1,
    )
    tolerance: float = setting(
        2.0,
        "points of k-NN accuracy that features may lose before they count as worse",
        operational=True,
        ge=0,
    )
    tolerance_without_labels: float = setting(
        0.15,
        "share by which the distance between views of an image, relative to that between images, "
        "may grow before features count as worse, where there are no labels",
        operational=True,
        ge=0,
    )
