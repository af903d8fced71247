"""Pictures as landmark retrieval shows them: whole, in their own shape, at several scales."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.features.forward import as_tensor
from attmask.evaluation.features.readout import CLS, Reading
from attmask.models.backbone import Backbone

Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels of the stored picture."""


@dataclass(frozen=True)
class Thumbnail:
    """A picture whose longer side is at most so long; a smaller one is not enlarged.

    Of image `index`, only `boxes[index]` is shown where boxes are given, at the scale at which
    the whole picture would be shown.
    """

    longer_side: int
    scales: tuple[float, ...] = (1.0,)
    equal_scales: bool = False
    boxes: tuple[Box, ...] | None = None
    reading: Reading = CLS

    @property
    def batched(self) -> bool:
        """Every picture has its own size."""
        return False

    def crop(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The picture, or its box, made smaller (Lanczos, as DINO does it)."""
        shown = pixels if self.boxes is None else _inside(pixels, self.boxes[index])
        longest = self.longer_side * max(shown.shape[:2]) / max(pixels.shape[:2])
        planes = [Image.fromarray(np.ascontiguousarray(p)) for p in shown.transpose(2, 0, 1)]
        for plane in planes:
            plane.thumbnail((max(1, longest), max(1, longest)), Image.Resampling.LANCZOS)
        return torch.cat([as_tensor(plane) for plane in planes])

    def vectors(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """What is read; with several scales their mean, at length one."""
        patch = backbone.patch_size
        read = [
            self.reading(backbone, _whole_patches(_scaled(images, scale, patch), patch)).float()
            for scale in self.scales
        ]
        if len(read) == 1:
            return read[0]
        if self.equal_scales:
            read = [functional.normalize(vectors, dim=1) for vectors in read]
        return functional.normalize(torch.stack(read).mean(dim=0), dim=1)

    def width(self, backbone: Backbone) -> int:
        """As wide as what is read."""
        return self.reading.width(backbone)

    def describe(self) -> dict[str, Any]:
        """Its fields, the boxes as a hash."""
        boxes = None if self.boxes is None else json.dumps(self.boxes)
        return {
            "crop": "thumbnail",
            "longer_side": self.longer_side,
            "scales": list(self.scales),
            "equal_scales": self.equal_scales,
            "boxes": None if boxes is None else hashlib.sha256(boxes.encode()).hexdigest(),
            "reading": self.reading.model_dump(),
        }


def _inside(pixels: UInt8[np.ndarray, "H W C"], box: Box) -> UInt8[np.ndarray, "h w C"]:
    """What lies in a box, at least one pixel."""
    height, width = pixels.shape[:2]
    left, top, right, bottom = (round(side) for side in box)
    left, top = min(max(0, left), width - 1), min(max(0, top), height - 1)
    return pixels[top : max(top + 1, bottom), left : max(left + 1, right)]


def _scaled(
    images: Float[Tensor, "B C height width"], scale: float, patch: int
) -> Float[Tensor, "B C h w"]:
    """Smaller or larger images; a side shorter than a patch is stretched to one."""
    sides = [int(side * scale) for side in images.shape[-2:]]
    if min(sides) < patch:
        return functional.interpolate(images, [max(side, patch) for side in sides], mode="bilinear")
    if scale == 1:
        return images
    return functional.interpolate(images, scale_factor=scale, mode="bilinear")


def _whole_patches(
    images: Float[Tensor, "B C height width"], patch: int
) -> Float[Tensor, "B C h w"]:
    """Without the pixels on the right and at the bottom that fill no patch (DINO passes over them,
    too)."""
    height, width = (side - side % patch for side in images.shape[-2:])
    return images[..., :height, :width]
