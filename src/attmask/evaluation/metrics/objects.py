"""Attention on annotated objects, and the share of the object that each masking strategy hides."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.crops import as_tensor, center_crop
from attmask.evaluation.features.forward import Count, ReadBatch, uncounted
from attmask.mask import Grid
from attmask.masking import Block, High, Hint, Low, Masker, Random, Strategy
from attmask.metric import Metric

BACKGROUND, OBJECT, UNKNOWN = 0, 1, 2
_REGION_OF_TRIMAP = [UNKNOWN, OBJECT, BACKGROUND, UNKNOWN]  # 1 object, 2 background, 3 border


class ObjectMasks:
    """The mask files of the images of a source.

    The mask of the image `<split>/<class>/<id>.<ext>` is `masks/<split>/<class>/<id>.png` (nonzero
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
            if path.is_absolute():  # joining it to a mask folder would give the image itself
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
            raise UserError(f"cannot read the mask {file} ({error}); create it again") from error
        if (pixels.shape[1], pixels.shape[0]) != image_size_wh:
            raise UserError(
                f"{file} has {pixels.shape[1]} x {pixels.shape[0]} pixels, but its image has "
                f"{image_size_wh[0]} x {image_size_wh[1]}; a mask must have the size of its image"
            )
        if file.is_relative_to(self.trimaps):
            pixels = torch.tensor(_REGION_OF_TRIMAP, dtype=torch.uint8)[pixels.clamp(max=3).long()]
        else:
            pixels = (pixels != 0).to(torch.uint8) * OBJECT
        return Image.fromarray(pixels.numpy())


@dataclass(frozen=True)
class Coverage:
    """The shares of each patch's pixels that are object, and that are object or background."""

    object: Float[Tensor, "B N"]
    known: Float[Tensor, "B N"]


def patch_coverage(regions: UInt8[Tensor, "B H W"], patch_size: int) -> Coverage:
    """Compute the coverage of each patch; unknown pixels are neither object nor background."""

    def share(pixels: Bool[Tensor, "B H W"]) -> Float[Tensor, "B N"]:
        return functional.avg_pool2d(pixels.float()[:, None], patch_size).flatten(1)

    return Coverage(object=share(regions == OBJECT), known=share(regions != UNKNOWN))


def attention_on_object(attention: Float[Tensor, "B N"], coverage: Coverage) -> Float[Tensor, "B"]:
    """The share of the attention on known pixels that falls on the object."""
    seen = (attention * coverage.known).sum(dim=1)
    return (attention * coverage.object).sum(dim=1) / seen.clamp_min(torch.finfo(seen.dtype).tiny)


def object_area(coverage: Coverage) -> Float[Tensor, "B"]:
    """The share of the known pixels that are object, which uniform attention would reach."""
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
    """The mask of each strategy for every image at the same ratio."""
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
    """Means over the images that show an object, as shares from 0 to 1.

    `patches_hidden` is needed for a fair comparison: Hint and Block hide fewer patches than the
    ratio.
    """

    images: int
    ratio: float
    attention_on_object: float
    object_area: float
    object_hidden: dict[str, float]
    patches_hidden: dict[str, float]

    @property
    def lift(self) -> float:
        """The attention on the object relative to its area."""
        return self.attention_on_object / self.object_area


def object_metrics(report: ObjectReport) -> tuple[Metric, ...]:
    """The metrics of a report for logs and cards, shares in per cent."""

    def share(name: str, value: float, title: str, direction: bool | None = None) -> Metric:
        return Metric(f"objects.{name}", 100 * value, "%", direction, title=title)

    return (
        share("attention", report.attention_on_object, "attention on the object", True),
        share("area", report.object_area, "area of the object"),
        Metric("objects.lift", report.lift, "", True, title="attention / area"),
        *(
            share(f"hidden_{name}", value, f"object hidden by {name}")
            for name, value in report.object_hidden.items()
        ),
        *(
            share(f"patches_{name}", value, f"patches hidden by {name}")
            for name, value in report.patches_hidden.items()
        ),
        Metric("objects.images", report.images, "images", None, title="images with an object"),
    )


@dataclass(frozen=True, eq=False)
class ObjectRegions:
    """Reads the mask of an image in the centre crop, together with the image.

    An unreadable image gets no object, so it is not counted.
    """

    masks: ObjectMasks
    size: int

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"] | None, index: int
    ) -> UInt8[Tensor, "size size"]:
        """BACKGROUND, OBJECT or UNKNOWN for each pixel of the crop."""
        if pixels is None:
            return torch.full((self.size, self.size), BACKGROUND, dtype=torch.uint8)
        region = self.masks.region(index, (pixels.shape[1], pixels.shape[0]))
        return as_tensor(center_crop(region, self.size, Image.Resampling.NEAREST))[0]


ObjectMeasures = dict[str, list[Tensor]]
"""Each measure for the images that show an object, batch by batch."""


def measure_objects(
    batches: Iterable[ReadBatch],
    patch_size: int,
    *,
    ratio: float = 0.3,
    seed: int = 0,
    first_image: int = 0,
    count: Count = uncounted,
) -> ObjectMeasures:
    """Measure the attention on the object and the share of it that each strategy hides.

    The batches have attention maps as values and regions as targets; `first_image` is the number
    of the first image for the random masks.
    """
    measured: ObjectMeasures = {}
    for batch in batches:
        assert batch.targets is not None
        rows, cols = batch.values.shape[1:]
        found = _measure(
            batch.values.flatten(1).cpu(),
            (rows, cols),
            patch_coverage(batch.targets, patch_size),
            ratio=ratio,
            seed=seed,
            first_image=first_image,
        )
        for name, values in found.items():
            measured.setdefault(name, []).append(values)
        first_image += len(batch.values)
        count(len(batch.values))
    return measured


def _measure(
    attention: Float[Tensor, "B N"],
    grid: Grid,
    coverage: Coverage,
    *,
    ratio: float,
    seed: int,
    first_image: int,
) -> dict[str, Tensor]:
    """Each measure for the images of a batch that show an object."""
    masks = strategy_masks(attention, grid, ratio=ratio, seed=seed, first_image=first_image)
    values = {
        "attention": attention_on_object(attention, coverage),
        "area": object_area(coverage),
        **{f"object {name}": object_hidden(mask, coverage) for name, mask in masks.items()},
        **{f"patches {name}": mask.float().mean(dim=1) for name, mask in masks.items()},
    }
    shown = coverage.object.sum(dim=1) > 0
    return {name: value.masked_select(shown) for name, value in values.items()}


def joined(parts: Iterable[ObjectMeasures]) -> ObjectMeasures:
    """Join the measures of several processes."""
    whole: ObjectMeasures = {}
    for part in parts:
        for name, values in part.items():
            whole.setdefault(name, []).extend(values)
    return whole


def object_report(measured: ObjectMeasures, source: Source, ratio: float) -> ObjectReport:
    """Means over all images; raises a `UserError` if none of them shows an object."""
    images = sum(len(values) for values in measured.get("area", []))
    if images == 0:
        raise UserError(
            f"no image of {source.root} shows an annotated object; add "
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
