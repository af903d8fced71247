"""The settings of the detector."""

from pydantic import field_validator, model_validator

from attmask.settings import Config, setting

Stds = tuple[float, float, float, float]


class ProposalsConfig(Config):
    """The region proposal network: anchors, their samples in training, and its proposals."""

    anchor_scale: float = setting(8.0, "size of an anchor in strides of its level", paper="8", gt=0)
    anchor_ratios: tuple[float, ...] = setting(
        (0.5, 1.0, 2.0), "height / width of the anchors", paper="[0.5, 1, 2]", min_length=1
    )
    positive_iou: float = setting(
        0.7, "IoU with an instance from which an anchor is positive", paper="0.7", gt=0, le=1
    )
    negative_iou: float = setting(
        0.3, "IoU with every instance below which an anchor is negative", paper="0.3", gt=0, le=1
    )
    lowest_iou: float = setting(
        0.3,
        "IoU from which the best anchors of an instance are positive, even below positive_iou",
        paper="0.3",
        gt=0,
        le=1,
    )
    inside_only: bool = setting(
        True, "leave anchors that cross the border of the image out of training", paper="true"
    )
    samples: int = setting(256, "anchors of an image in the loss", paper="256", ge=2)
    positive_fraction: float = setting(
        0.5, "largest share of positive samples", paper="0.5", gt=0, lt=1
    )
    nms_iou: float = setting(
        0.7, "IoU above which the weaker of two proposals is dropped", paper="0.7", gt=0, le=1
    )
    train_count: int = setting(
        2000, "proposals in training: of each level before NMS, in all after it", paper="2000", ge=1
    )
    test_count: int = setting(1000, "the same in evaluations and predictions", paper="1000", ge=1)

    @model_validator(mode="after")
    def _fits_together(self) -> "ProposalsConfig":
        if self.negative_iou > self.positive_iou:
            raise ValueError(
                f"negative_iou={self.negative_iou:g} is above positive_iou={self.positive_iou:g}; "
                "use at most that"
            )
        return self

    @field_validator("anchor_ratios")
    @classmethod
    def _positive(cls, ratios: tuple[float, ...]) -> tuple[float, ...]:
        if min(ratios) <= 0:
            raise ValueError(
                f"{list(ratios)} has a ratio that is not above 0; use e.g. [0.5, 1, 2]"
            )
        return ratios


class CascadeConfig(Config):
    """The stages: each samples the boxes of the one before, classifies, refines and masks them."""

    positive_iou: tuple[float, ...] = setting(
        (0.5, 0.6, 0.7),
        "IoU with an instance from which a box is positive, in each stage",
        paper="[0.5, 0.6, 0.7]",
        min_length=1,
    )
    loss_weights: tuple[float, ...] = setting(
        (1.0, 0.5, 0.25), "weight of the losses of each stage", paper="[1, 0.5, 0.25]"
    )
    box_stds: tuple[Stds, ...] = setting(
        ((0.1, 0.1, 0.2, 0.2), (0.05, 0.05, 0.1, 0.1), (0.033, 0.033, 0.067, 0.067)),
        "unit of the predicted change of a box in each stage: x, y, log width, log height",
        paper="[[0.1, 0.1, 0.2, 0.2], [0.05, 0.05, 0.1, 0.1], [0.033, 0.033, 0.067, 0.067]]",
    )
    samples: int = setting(512, "boxes of an image in the loss of a stage", paper="512", ge=2)
    positive_fraction: float = setting(
        0.25, "largest share of positive samples", paper="0.25", gt=0, lt=1
    )
    box_weight: float = setting(10.0, "weight of the GIoU loss of the boxes", paper="10", gt=0)
    box_size: int = setting(7, "side of the features of a box", paper="7", ge=1, le=64)
    mask_size: int = setting(
        14, "side of the features of a mask, which is twice as large", paper="14", ge=1, le=64
    )
    finest_scale: float = setting(
        56.0,
        "boxes below twice this size (square root of the area, in pixels) use the finest level",
        paper="56",
        gt=0,
    )
    convs: int = setting(4, "convolutions of a box head and of a mask head", paper="4", ge=0, le=50)
    channels: int = setting(256, "channels of these convolutions", paper="256", ge=1, le=2**14)
    hidden: int = setting(
        1024, "width of the layer before classes and boxes", paper="1024", ge=1, le=2**16
    )

    @model_validator(mode="after")
    def _fits_together(self) -> "CascadeConfig":
        stages = len(self.positive_iou)
        if not stages == len(self.loss_weights) == len(self.box_stds):
            raise ValueError(
                f"positive_iou has {stages} stages, loss_weights {len(self.loss_weights)}, "
                f"box_stds {len(self.box_stds)}; use as many of each"
            )
        if not all(0 < iou <= 1 for iou in self.positive_iou):
            raise ValueError(f"positive_iou={list(self.positive_iou)} must be above 0, at most 1")
        if min(min(stds) for stds in self.box_stds) <= 0:
            raise ValueError("box_stds must be above 0")
        if self.samples * self.positive_fraction < 1:
            raise ValueError(
                f"samples={self.samples} with positive_fraction={self.positive_fraction:g} leave "
                "no positive sample; use more of either"
            )
        return self


class DetectionsConfig(Config):
    """Which boxes of an image are its detections."""

    score: float = setting(0.05, "score above which a box counts", paper="0.05", ge=0, lt=1)
    nms_iou: float = setting(
        0.5,
        "IoU above which the weaker of two boxes of a class is dropped",
        paper="0.5",
        gt=0,
        le=1,
    )
    count: int = setting(100, "most detections of an image", paper="100", ge=1)


class DetectorConfig(Config):
    """Everything on top of the backbone."""

    channels: int = setting(256, "channels of the feature pyramid", paper="256", ge=1, le=2**14)
    norm_levels: bool = setting(
        False, "put the final norm of the backbone on the features of all levels", paper="false"
    )
    proposals: ProposalsConfig = setting(ProposalsConfig(), "the region proposal network")
    cascade: CascadeConfig = setting(CascadeConfig(), "the stages of box and mask heads")
    detections: DetectionsConfig = setting(DetectionsConfig(), "the choice of detections")
