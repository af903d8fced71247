"""Where the images come from: what DATA is decides how it is opened, and the settings of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import field_validator, model_validator

from attmask.data.source import Images
from attmask.data.stores import arrays, lists
from attmask.data.stores.arrays import open_arrays
from attmask.data.stores.files import files_of
from attmask.data.stores.folder import Walk, scan_folder
from attmask.data.stores.huggingface import is_saved, open_saved
from attmask.data.stores.index import Index, load_index
from attmask.data.stores.lists import scan_list
from attmask.data.stores.parquet import find_parquet, open_parquet, open_rows, picture_column
from attmask.data.stores.shards import (
    find_shards,
    refuse_compressed,
    scan_one_shard,
    scan_shards,
    shards_of,
)
from attmask.errors import UserError
from attmask.settings import Config, setting

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
GREY_MEAN = (0.459,)  # ImageNet's mean through the luma weights 0.299, 0.587, 0.114
GREY_STD = (0.226,)  # the mean of the three: channels of photographs go nearly together
OTHER_MEAN = (0.5,)  # nothing is known of other channels
OTHER_STD = (0.25,)
DEPTHS = (8, 16)  # bits

_ACCEPTED = (
    "a folder of images, a list (.txt, .csv, .tsv, .parquet), tar shards, "
    "a .npy or .npz file or a Hugging Face dataset on disk"
)


class DataConfig(Config):
    """What is read of the images and how their values are scaled."""

    channels: int = setting(3, "channels an image is read with: 3 colour, 1 grey, or any number")
    per_class: int | None = setting(
        None,
        "train on the first n images of each class, in file order (null: on all)",
        paper="65, 130, 260 for 5, 10, 20 % of ImageNet",
        ge=1,
    )
    percent: float | None = setting(
        None,
        "train on the first per cent of each class, in file order (null: on all)",
        gt=0,
        le=100,
    )
    order: Literal["shuffled", "sequential"] = setting(
        "shuffled",
        "shuffled over all images, or read front to back in each shard (for slow disks)",
        paper="shuffled",
    )
    unreadable_limit: float = setting(
        0.01,
        "share of the images that may be unreadable before the run stops",
        operational=True,
        ge=0,
        le=1,
    )
    bits: int | None = setting(
        None,
        "depth of 16-bit pictures, 8 to 16 (null: by each picture's brightest value)",
        ge=DEPTHS[0],
        le=DEPTHS[1],
    )
    max_megapixels: float = setting(
        180.0, "larger pictures are refused: they may be decompression bombs", gt=0
    )
    mean: tuple[float, ...] = setting(
        IMAGENET_MEAN, "mean of each channel, or one for all, in 0..1", paper="ImageNet's"
    )
    std: tuple[float, ...] = setting(
        IMAGENET_STD, "deviation of each channel, or one for all, in 0..1", paper="ImageNet's"
    )

    @model_validator(mode="before")
    @classmethod
    def _statistics_for_the_channels(cls, given: Any) -> Any:
        """ImageNet's colour values stand only for colour: else its grey ones, or the middle."""
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
        if channels < 1:
            raise ValueError(f"images with {channels} channels are impossible; use 3, 1 or more")
        return channels

    @model_validator(mode="after")
    def _one_value_a_channel(self) -> "DataConfig":
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.channels):
                raise ValueError(
                    f"{name} has {len(values)} values for {self.channels} channels; "
                    f"give one for each channel, or one for all"
                )
        if min(self.std) <= 0:
            raise ValueError(f"std {self.std} must be above 0; it divides the pixel values")
        return self

    @model_validator(mode="after")
    def _statistics_of_values_up_to_one(self) -> "DataConfig":
        for name, values in (("mean", self.mean), ("std", self.std)):
            if max(values) > 1:
                given = ", ".join(f"{value:g}" for value in values)
                divided = ",".join(f"{value / 255:.4g}" for value in values)
                raise ValueError(
                    f"{name} [{given}] is in 0..255, but pixel values are in 0..1; "
                    f"use data.{name}=[{divided}]"
                )
        return self

    @model_validator(mode="after")
    def _one_way_to_take_less(self) -> "DataConfig":
        if self.per_class is not None and self.percent is not None:
            raise ValueError(
                f"per_class={self.per_class} and percent={self.percent} both choose the images; "
                f"set one of them to null"
            )
        return self


def images_path(data: str | Path) -> Path:
    """Where the images are; an empty text is refused, because it would mean the current folder."""
    if data == "":
        raise UserError(
            "the place of the images is empty, perhaps an unset variable; "
            "give a folder or file (. is the current folder)"
        )
    return Path(data)


def open_images(
    data: str | Path, *, index: Path | None = None, channels: int | None = None
) -> Images:
    """Find the images of `data`, whatever it is; `index` is a folder where an index may lie.

    `channels` is how many are wanted, where that is known: some arrays can be read in two ways.
    """
    path = images_path(data)
    try:
        if not path.exists():
            raise UserError(f"there is no {path}; give {_ACCEPTED}")
        if index is not None and (known := load_index(index, path)) is not None:
            return _found(known)
        return _open_folder(path) if path.is_dir() else _open_file(path, channels)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot read {path}: {why}; give {_ACCEPTED}") from fault


def _open_folder(path: Path) -> Images:
    if is_saved(path):
        return open_saved(path)
    walk = Walk(path)
    if tars := find_shards(walk):
        return _scanned(scan_shards(walk, tars))
    if rows := find_parquet(walk):
        return open_rows(path, rows)
    return _scanned(scan_folder(walk))


def _open_file(path: Path, channels: int | None) -> Images:
    refuse_compressed(path)
    ending = path.suffix.lower()
    if ending == ".tar":
        return _scanned(scan_one_shard(path))
    if ending in arrays.ENDINGS:
        return open_arrays(path, channels)
    if ending == ".parquet" and picture_column(open_parquet(path).schema_arrow) is not None:
        return open_rows(path.parent, {"train": [path.name]})
    if ending in lists.ENDINGS:
        return _scanned(scan_list(path))
    raise UserError(f"{path} is a file of no known kind; give {_ACCEPTED}")


def _scanned(index: Index) -> Images:
    return replace(_found(index), found=index)


def _found(index: Index) -> Images:
    """The sources of what a scan found, now or before."""
    open_part = shards_of if index.kind == "shards" else files_of
    splits = {name: open_part(index, part) for name, part in index.parts.items()}
    return replace(Images.of(splits), skipped=index.skipped)
