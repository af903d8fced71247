"""The settings of the images: which are read, in which order, and how their values are scaled."""

from typing import Any, Literal

from pydantic import field_validator, model_validator

from attmask.settings import Config, setting

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
GREY_MEAN = (0.459,)  # ImageNet's mean through the luma weights 0.299, 0.587, 0.114
GREY_STD = (0.226,)  # the mean of the three: channels of photographs go nearly together
OTHER_MEAN = (0.5,)  # nothing is known of other channels
OTHER_STD = (0.25,)
DEPTHS = (8, 16)  # bits
_MOST_CHANNELS = 4096


class DataConfig(Config):
    """Which images are read and how their values are scaled."""

    channels: int = setting(3, "number of channels: 3 for colour, 1 for grey, or any other")
    per_class: int | None = setting(
        None,
        "train on the first n images of each class, in file order (null: all)",
        paper="65, 130, 260 for 5, 10, 20 % of ImageNet",
        ge=1,
    )
    percent: float | None = setting(
        None,
        "train on the first p per cent of each class, in file order (null: all)",
        gt=0,
        le=100,
    )
    order: Literal["shuffled", "sequential"] = setting(
        "shuffled",
        "shuffle over all images, or read each shard sequentially (for slow disks)",
        paper="shuffled",
    )
    unreadable_limit: float = setting(
        0.01,
        "largest fraction of unreadable images; the run stops above it",
        operational=True,
        ge=0,
        le=1,
    )
    bits: int | None = setting(
        None,
        "bit depth of 16-bit pictures, 8 to 16 (null: from each picture's brightest value)",
        ge=DEPTHS[0],
        le=DEPTHS[1],
    )
    max_megapixels: float = setting(
        180.0,
        "largest size of a picture; larger ones may be decompression bombs and are unreadable",
        gt=0,
    )
    mean: tuple[float, ...] = setting(
        IMAGENET_MEAN, "mean of each channel, or one for all, in 0..1", paper="ImageNet's"
    )
    std: tuple[float, ...] = setting(
        IMAGENET_STD, "std of each channel, or one for all, in 0..1", paper="ImageNet's"
    )

    @model_validator(mode="before")
    @classmethod
    def _statistics_for_the_channels(cls, given: Any) -> Any:
        """Replace ImageNet's colour mean and std by values for other numbers of channels."""
        if not isinstance(given, dict) or given.get("channels", 3) in (3, "3"):
            return given
        is_grey = given["channels"] in (1, "1")
        fitting = dict(given)
        for name, colour, grey, other in (
            ("mean", IMAGENET_MEAN, GREY_MEAN, OTHER_MEAN),
            ("std", IMAGENET_STD, GREY_STD, OTHER_STD),
        ):
            if fitting.get(name, colour) in (colour, list(colour)):
                fitting[name] = grey if is_grey else other
        return fitting

    @field_validator("channels")
    @classmethod
    def _at_least_one(cls, channels: int) -> int:
        if not 1 <= channels <= _MOST_CHANNELS:
            raise ValueError(
                f"{channels} channels are impossible; use 3, 1 or more, up to {_MOST_CHANNELS}"
            )
        return channels

    @model_validator(mode="after")
    def _one_value_a_channel(self) -> "DataConfig":
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise ValueError(
                    f"data.{name} has {len(values)} values for {self.channels} channels; "
                    f"give one for each channel, or one for all"
                )
        if min(self.mean) < 0:
            raise ValueError(f"data.mean {self.mean} is below 0, but pixel values are in 0..1")
        if min(self.std) <= 0:
            raise ValueError(f"data.std {self.std} must be above 0; it divides the pixel values")
        return self

    @model_validator(mode="after")
    def _statistics_of_values_up_to_one(self) -> "DataConfig":
        for name, values in (("mean", self.mean), ("std", self.std)):
            if max(values) > 1:
                given = ", ".join(f"{value:g}" for value in values)
                divided = ",".join(f"{value / 255:.4g}" for value in values)
                raise ValueError(
                    f"data.{name} [{given}] is in 0..255, but pixel values are in 0..1; "
                    f"use data.{name}=[{divided}]"
                )
        return self

    @model_validator(mode="after")
    def _one_way_to_take_less(self) -> "DataConfig":
        if self.per_class is not None and self.percent is not None:
            raise ValueError(
                f"data.per_class={self.per_class} and data.percent={self.percent} are both set; "
                f"set one of them to null"
            )
        return self
