"""The images that a report shows: some to look at closely, and more for a map of embeddings."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from attmask.data.decode import decode
from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.subset import evenly_spaced, spread_evenly, thinned
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.images import CachedCrops, Crops
from attmask.evaluation.metrics.objects import ObjectMasks, ObjectRegions, patch_coverage
from attmask.evaluation.model import FrozenModel
from attmask.mask import Grid

log = logging.getLogger(__name__)

PROBES, IMAGES = 8, 500
_SEARCHED = 20
"""Of very many images, so many times as many as are shown are looked at."""


@dataclass(frozen=True, eq=False)
class Gallery:
    """Centre crops of some images; `probes` are the places of those that are shown large."""

    crops: CachedCrops
    probes: list[int]
    patch_size: int

    @property
    def grid(self) -> Grid:
        """The patches of a crop."""
        height, width = self.crops.pixels.shape[-2:]
        return height // self.patch_size, width // self.patch_size

    @property
    def names(self) -> list[str]:
        """The names of all images."""
        return [self.crops.source.name(index) for index in self.crops.indices]

    @cached_property
    def labels(self) -> list[int] | None:
        """Their classes by number, if they are known."""
        return None if self.crops.labels is None else self.crops.labels.tolist()

    def label(self, place: int) -> str | None:
        """The name of the class of an image."""
        labels, classes = self.labels, self.crops.classes
        return None if labels is None or labels[place] < 0 else classes[labels[place]]

    @property
    def probe_crops(self) -> Crops:
        """The crops of the probes as one batch."""
        return Crops(self.crops.pixels[self.probes], torch.ones(len(self.probes), dtype=torch.bool))

    @property
    def key(self) -> str:
        """A hash of the images, by which what was stored of them is found again."""
        shapes = f"{self.crops.pixels.shape} {self.grid} {self.probes}"
        content = [shapes, *self.names]
        return hashlib.sha256("\0".join(content).encode(errors="surrogatepass")).hexdigest()[:12]

    def tiles(self, side: int) -> UInt8[np.ndarray, "M side side 3"]:
        """All crops in a small size."""
        return np.stack([np.asarray(self.picture(place, side)) for place in range(len(self.crops))])

    def picture(self, place: int, side: int) -> Image.Image:
        """A crop in colour, so many pixels wide; of many channels the first three."""
        crop = self.crops.pixels[place]
        shown = crop[:3] if len(crop) >= 3 else crop[:1].expand(3, -1, -1)
        picture = Image.fromarray(shown.permute(1, 2, 0).contiguous().numpy())
        return picture.resize((side, side), Image.Resampling.LANCZOS)

    def with_probes(self, count: int) -> "Gallery":
        """The same images, of which only the first probes are shown large."""
        return replace(self, probes=self.probes[:count])

    def objects(self) -> Float[Tensor, "P N"] | None:
        """The share of each patch of the probes that is object; None without masks of them all."""
        source = self.crops.source
        indices = [self.crops.indices[place] for place in self.probes]
        masks = ObjectMasks(source)
        if not all(index in masks.files for index in indices):
            return None
        regions = ObjectRegions(masks, self.crops.pixels.shape[-1])
        try:
            read = [regions(decode(source, i, self.crops.reader.data), i) for i in indices]
        except UserError as fault:
            log.warning("%s; the report is made without objects", fault)
            return None
        return patch_coverage(torch.stack(read), self.patch_size).object


def gallery_of(
    images: Images, model: FrozenModel, check: Callable[[], None] = lambda: None
) -> Gallery:
    """Read some held-out images, or images that were trained on where none are held out.

    `check` is called for each of them, and may raise.
    """
    crop = Checked(CenterCrop(model.image_size), check)
    source = _some(images.held_out or images.train, IMAGES)
    crops = CachedCrops(source, crop, model.data)
    if not len(crops):
        raise UserError(f"no image of {source.root} can be read; repair them")
    return Gallery(crops, _probes(crops, PROBES), model.backbone.patch_size)


@dataclass(frozen=True)
class Checked:
    """A crop that calls a function before each image, which may raise to end the reading."""

    crop: CenterCrop
    check: Callable[[], None]

    @property
    def size_hw(self) -> tuple[int, int] | None:
        """Rows and columns of pixels."""
        return self.crop.size_hw

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The crop."""
        self.check()
        return self.crop(pixels, index)

    def describe(self) -> dict[str, Any]:
        """That of the crop."""
        return self.crop.describe()


def _some(source: Source, most: int) -> Source:
    source = thinned(source, _SEARCHED * most)
    return source.subset(spread_evenly(source.labels, len(source), most))


def _probes(crops: CachedCrops, count: int) -> list[int]:
    """Evenly spread places, of images with a mask if there are enough."""
    masked = ObjectMasks(crops.source).files
    places = [place for place, index in enumerate(crops.indices) if index in masked]
    if len(places) < min(count, len(crops)):
        places = list(range(len(crops)))
    return [places[i] for i in evenly_spaced(len(places), min(count, len(places)))]
