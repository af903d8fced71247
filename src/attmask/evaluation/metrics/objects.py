"""Where the object is known: does attention fall on it, and how much of it does a mask hide?"""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.data.config import DataConfig
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.source import Source
from attmask.data.subset import spread_evenly
from attmask.errors import UserError
from attmask.evaluation.features.forward import (
    Autocast,
    Count,
    as_tensor,
    center_crop,
    crop_pixels,
    frozen,
    normalise,
    read_in_order,
    uncounted,
)
from attmask.mask import Grid
from attmask.masking import Block, High, Hint, Low, Masker, Random, Strategy
from attmask.models.backbone import Backbone

BACKGROUND, OBJECT, UNKNOWN = 0, 1, 2
_REGION_OF_TRIMAP = [UNKNOWN, OBJECT, BACKGROUND, UNKNOWN]  # 1 object, 2 background, 3 border


class ObjectMasks:
    """The files that say where the object is in the images of a source.

    For the image `<split>/<class>/<id>.<ext>` that is `masks/<split>/<class>/<id>.png` (not zero
    is object) or `trimaps/<split>/<class>/<id>.png` (1 object, 2 background, 3 unknown).
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        root = source.root.absolute()
        folders = [root.parent / name / root.name for name in ("masks", "trimaps")]
        found = [folder for folder in folders if folder.is_dir()]
        self.files: dict[int, Path] = {}
        for index in range(len(source) if found else 0):
            path = Path(source.name(index))
            if path.is_absolute():  # joined to a folder of masks it would still be the image
                continue
            files = (folder / path.with_suffix(".png") for folder in found)
            if file := next((file for file in files if file.is_file()), None):
                self.files[index] = file
        self.trimaps = root.parent / "trimaps"

    def __len__(self) -> int:
        return len(self.files)

    def region(self, index: int, image_size_wh: tuple[int, int]) -> Image.Image:
        """BACKGROUND, OBJECT or UNKNOWN for each pixel of the whole image."""
        file = self.files[index]
        try:
            with Image.open(file) as opened:
                values = opened if opened.mode in ("L", "P") else opened.convert("L")
                pixels = as_tensor(values)[0]
        except (OSError, SyntaxError) as error:
            raise UserError(f"{file} cannot be read as a mask ({error}); make it again") from error
        if (pixels.shape[1], pixels.shape[0]) != image_size_wh:
            raise UserError(
                f"{file} is {pixels.shape[1]} x {pixels.shape[0]} pixels, its image "
                f"{image_size_wh[0]} x {image_size_wh[1]}; a mask must have the size of its image"
            )
        if file.is_relative_to(self.trimaps):
            pixels = torch.tensor(_REGION_OF_TRIMAP, dtype=torch.uint8)[pixels.clamp(max=3).long()]
        else:
            pixels = (pixels != 0).to(torch.uint8) * OBJECT
        return Image.fromarray(pixels.numpy())


@dataclass(frozen=True)
class Coverage:
    """The share of each patch's pixels that are object, and that are known to be either."""

    object: Float[Tensor, "B N"]
    known: Float[Tensor, "B N"]


def patch_coverage(regions: UInt8[Tensor, "B H W"], patch_size: int) -> Coverage:
    """Count the pixels of each patch; unknown ones are neither object nor background."""

    def share(pixels: Bool[Tensor, "B H W"]) -> Float[Tensor, "B N"]:
        return functional.avg_pool2d(pixels.float()[:, None], patch_size).flatten(1)

    return Coverage(object=share(regions == OBJECT), known=share(regions != UNKNOWN))


def attention_on_object(attention: Float[Tensor, "B N"], coverage: Coverage) -> Float[Tensor, "B"]:
    """The share of the attention to known pixels that falls on the object."""
    seen = (attention * coverage.known).sum(dim=1)
    return (attention * coverage.object).sum(dim=1) / seen.clamp_min(torch.finfo(seen.dtype).tiny)


def object_area(coverage: Coverage) -> Float[Tensor, "B"]:
    """The share of the known pixels that are object: what blind attention would give."""
    return coverage.object.sum(dim=1) / coverage.known.sum(dim=1).clamp_min(1e-12)


def object_hidden(mask: Bool[Tensor, "B N"], coverage: Coverage) -> Float[Tensor, "B"]:
    """The share of the object that the mask hides."""
    return (mask * coverage.object).sum(dim=1) / coverage.object.sum(dim=1).clamp_min(1e-12)


def strategy_masks(
    attention: Float[Tensor, "B N"],
    grid: Grid,
    *,
    ratio: float = 0.3,
    seed: int = 0,
    first_image: int = 0,
) -> dict[str, Bool[Tensor, "B N"]]:
    """What each strategy hides of every image at the same ratio."""
    strategies: dict[str, Strategy] = {
        "high": High(),
        "hint": Hint(show_max=min(0.1, ratio)),
        "low": Low(),
        "random": Random(),
        "block": Block(),
    }
    return {
        name: Masker(strategy, ratio=(ratio, ratio), probability=1.0, seed=seed)(
            attention, grid=grid, step=0, first_image=first_image, view=0
        )
        for name, strategy in strategies.items()
    }


@dataclass(frozen=True)
class ObjectReport:
    """Means over the images that show an object; all shares from 0 to 1.

    `patches_hidden` is there to be fair: Hint and Block hide fewer patches than the ratio says.
    """

    images: int
    ratio: float
    attention_on_object: float
    object_area: float
    object_hidden: dict[str, float]
    patches_hidden: dict[str, float]

    @property
    def lift(self) -> float:
        """How many times more attention falls on the object than its area explains."""
        return self.attention_on_object / self.object_area

    def as_metrics(self) -> dict[str, float]:
        """Flat names and numbers for the log."""
        metrics = {
            "object/attention": self.attention_on_object,
            "object/area": self.object_area,
            "object/lift": self.lift,
            "object/images": float(self.images),
        }
        for name, share in self.object_hidden.items():
            metrics[f"object/hidden_{name}"] = share
            metrics[f"object/patches_{name}"] = self.patches_hidden[name]
        return metrics


def read_scene(
    masks: ObjectMasks, image_size: int, data: DataConfig, index: int
) -> tuple[UInt8[Tensor, "C H W"], UInt8[Tensor, "H W"]]:
    """The centre crop of an image, and of its region in the same place.

    An image that cannot be read is black and without an object, so that nothing is measured on it.
    """
    try:
        pixels = decode(masks.source, index, data)
    except UnreadableImageError:
        blank = torch.zeros(data.channels, image_size, image_size, dtype=torch.uint8)
        return blank, torch.full((image_size, image_size), BACKGROUND, dtype=torch.uint8)
    region = masks.region(index, (pixels.shape[1], pixels.shape[0]))
    nearest = center_crop(region, image_size, Image.Resampling.NEAREST)
    return crop_pixels(pixels, image_size), as_tensor(nearest)[0]


def measure_objects(
    backbone: Backbone,
    source: Source,
    *,
    image_size: int,
    data: DataConfig,
    ratio: float = 0.3,
    seed: int = 0,
    max_images: int | None = None,
    batch_size: int = 64,
    workers: int = 0,
    autocast: Autocast = nullcontext,
    count: Count = uncounted,
) -> ObjectReport:
    """Attention on the object and what each strategy hides of it, over the images that have one.

    `count` is told how many images were done.
    """
    masks = ObjectMasks(source)
    with_mask = sorted(masks.files)
    labels = None if source.labels is None else [int(source.labels[i]) for i in with_mask]
    chosen = [with_mask[i] for i in spread_evenly(labels, len(with_mask), max_images)]
    read = partial(read_scene, masks, image_size, data)
    measured: dict[str, list[Tensor]] = {}
    done = 0
    with frozen(backbone):
        for crops, regions in read_in_order(read, chosen, batch_size=batch_size, workers=workers):
            images = normalise(crops.to(backbone.device), data.mean, data.std)
            with autocast():
                attention = backbone.summary(images).attention
            batch = _measure(
                attention.float().cpu(),
                backbone.grid(image_size, image_size),
                patch_coverage(regions, backbone.patch_size),
                ratio=ratio,
                seed=seed,
                first_image=done,
            )
            for name, values in batch.items():
                measured.setdefault(name, []).append(values)
            done += len(crops)
            count(len(crops))
    return _report(measured, source, ratio)


def _measure(
    attention: Float[Tensor, "B N"],
    grid: Grid,
    coverage: Coverage,
    *,
    ratio: float,
    seed: int,
    first_image: int,
) -> dict[str, Tensor]:
    """Every measure of each image; not a number where there is no object to measure on."""
    masks = strategy_masks(attention, grid, ratio=ratio, seed=seed, first_image=first_image)
    values = {
        "attention": attention_on_object(attention, coverage),
        "area": object_area(coverage),
        **{f"object {name}": object_hidden(mask, coverage) for name, mask in masks.items()},
        **{f"patches {name}": mask.float().mean(dim=1) for name, mask in masks.items()},
    }
    shown = coverage.object.sum(dim=1) > 0
    return {name: value.masked_select(shown) for name, value in values.items()}


def _report(measured: dict[str, list[Tensor]], source: Source, ratio: float) -> ObjectReport:
    images = sum(len(values) for values in measured.get("area", []))
    if images == 0:
        raise UserError(
            f"no object is known in the images of {source.root}; wanted "
            "masks/<split>/<class>/<id>.png or trimaps/<split>/<class>/<id>.png beside the splits"
        )
    means = {name: float(torch.cat(values).mean()) for name, values in measured.items()}
    names = [name.removeprefix("object ") for name in means if name.startswith("object ")]
    return ObjectReport(
        images=images,
        ratio=ratio,
        attention_on_object=means["attention"],
        object_area=means["area"],
        object_hidden={name: means[f"object {name}"] for name in names},
        patches_hidden={name: means[f"patches {name}"] for name in names},
    )
