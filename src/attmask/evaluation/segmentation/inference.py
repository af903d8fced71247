"""The classes of the pixels of a whole image of any size: whole or in windows, flips and scales.

The logits of one view exist once at the size of the image (twice while a mirrored view is turned
back), and the probabilities, where they are asked for or averaged, once at the original size. All
else is computed for some classes at a time. 150 classes of 512 x 683 pixels take 370 MB at most,
1024 x 2048 pixels shown whole 1.5 GB (`labels`, fp32, without the network, 2026-11-18).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from pydantic import Field, model_validator
from torch import Tensor

from attmask.settings import Config, setting

_CHUNK = 2**24  # resized logits that exist at a time: 64 MB


class InferenceConfig(Config):
    """How the pixels of whole images are classified."""

    mode: Literal["whole", "slide"] = setting(
        "slide", "show the whole image at a time, or windows of it", paper="slide"
    )
    crop: int = setting(512, "side of a window in pixels", paper="512", ge=1, le=2**14)
    stride: int = setting(341, "distance between windows in pixels", paper="341", ge=1, le=2**14)
    flip: bool = setting(False, "average with the mirrored image", paper="false, multi-scale: true")
    scales: tuple[Annotated[float, Field(gt=0, le=16)], ...] = setting(
        (1.0,),
        "average over the image in these sizes",
        paper="[1], multi-scale: [0.5, 0.75, 1, 1.25, 1.5, 1.75]",
        min_length=1,
    )
    batch: int = setting(
        8, "windows that go through the network at a time", ge=1, le=2**14, operational=True
    )

    @model_validator(mode="after")
    def _no_gaps(self) -> "InferenceConfig":
        if self.stride > self.crop:
            raise ValueError(
                f"windows of {self.crop} pixels at a distance of {self.stride} leave gaps; "
                f"use stride={self.crop} or less"
            )
        return self


@dataclass(frozen=True)
class Inference:
    """A network that classifies the pixels of images whose sides are multiples of its patch.

    An image, or a window of an image that is smaller than a window, is padded at the right and at
    the bottom to whole patches with 0, the mean colour, and the padding is cut off its logits.
    mmseg does not pad: there, the image is resized to such a size, or a part of a patch is lost.
    """

    logits: Callable[[Tensor], Tensor]
    """Normalised images B C h w become logits B classes h' w' of any smaller size."""
    patch_size: int
    config: InferenceConfig = field(default_factory=InferenceConfig)

    @torch.no_grad()
    def probabilities(
        self, image: Float[Tensor, "C h w"], size_hw: tuple[int, int]
    ) -> Float[Tensor, "classes H W"]:
        """The probabilities of the classes at another size, normally the original one of an image
        that was resized for the network: the mean of those of all scales and flips."""
        views = self._views(image)
        first = next(views)
        total = first.new_zeros(len(first), *size_hw)
        _add_softmax_(total, first)
        del first  # before the next view is computed
        for view in views:
            _add_softmax_(total, view)
            del view
        return total.div_(len(self.config.scales) * (1 + self.config.flip))

    @torch.no_grad()
    def labels(
        self, image: Float[Tensor, "C h w"], size_hw: tuple[int, int]
    ) -> Int64[Tensor, "H W"]:
        """The most probable class of each pixel."""
        if len(self.config.scales) > 1 or self.config.flip:
            return self.probabilities(image, size_hw).argmax(dim=0)
        return _argmax(next(self._views(image)), size_hw)

    def _views(self, image: Float[Tensor, "C h w"]) -> Iterator[Float[Tensor, "classes _ _"]]:
        """The logits of the image in each scale, and of its mirror image."""
        for scale in self.config.scales:
            size_hw = _scaled((image.shape[1], image.shape[2]), scale)
            scaled = _resize(image, size_hw)
            yield self._slide(scaled)
            if self.config.flip:
                yield self._slide(scaled.flip(-1)).flip(-1)

    def _slide(self, image: Float[Tensor, "C h w"]) -> Float[Tensor, "classes h w"]:
        """The mean of the logits of all windows that contain a pixel."""
        height, width = image.shape[1:]
        side = max(height, width) if self.config.mode == "whole" else self.config.crop
        high, wide = min(side, height), min(side, width)
        padding = (0, -wide % self.patch_size, 0, -high % self.patch_size)
        corners = [
            (top, left)
            for top in window_starts(height, side, self.config.stride)
            for left in window_starts(width, side, self.config.stride)
        ]
        total, count = image.new_zeros(0), image.new_zeros(height, width)
        for first in range(0, len(corners), self.config.batch):
            some = corners[first : first + self.config.batch]
            windows = torch.stack([image[:, y : y + high, x : x + wide] for y, x in some])
            padded = F.pad(windows, padding)
            for (top, left), logits in zip(some, self.logits(padded).float(), strict=True):
                if not len(total):
                    total = logits.new_zeros(len(logits), height, width)
                count[top : top + high, left : left + wide] += 1
                place = total[:, top : top + high, left : left + wide]
                for classes, resized in _resized(logits, padded.shape[-2:]):
                    place[classes] += resized[:, :high, :wide]
        return total.div_(count.to(total.device))


def window_starts(size: int, crop: int, stride: int) -> list[int]:
    """Where windows begin along one side: at multiples of the stride, the last moved inside."""
    last = max(size - crop, 0)
    return [min(start, last) for start in range(0, last + stride, stride)]


def _scaled(size_hw: tuple[int, int], scale: float) -> tuple[int, int]:
    height, width = (max(1, int(side * scale + 0.5)) for side in size_hw)
    return height, width


def _add_softmax_(
    total: Float[Tensor, "classes H W"], logits: Float[Tensor, "classes h w"]
) -> None:
    """Add the probabilities of the classes; two passes, so that only the total has all of them."""
    size_hw = total.shape[1:]
    largest, sums = torch.full_like(total[0], -torch.inf), torch.zeros_like(total[0])
    for _, resized in _resized(logits, size_hw):
        before, largest = largest, torch.maximum(largest, resized.amax(dim=0))
        sums = sums * (before - largest).exp() + (resized - largest).exp_().sum(dim=0)
    for some, resized in _resized(logits, size_hw):
        total[some] += (resized - largest).exp_().div_(sums)


def _argmax(logits: Float[Tensor, "classes h w"], size_hw: tuple[int, int]) -> Int64[Tensor, "H W"]:
    best = logits.new_full(size_hw, -torch.inf)
    labels = torch.zeros(size_hw, dtype=torch.int64, device=logits.device)
    for some, resized in _resized(logits, size_hw):
        largest, index = resized.max(dim=0)
        better = largest > best
        labels = torch.where(better, index + some.start, labels)
        best = torch.where(better, largest, best)
    return labels


def _resized(
    logits: Float[Tensor, "classes h w"], size_hw: Sequence[int]
) -> Iterator[tuple[slice, Float[Tensor, "some H W"]]]:
    """The logits at another size, some classes at a time."""
    height, width = size_hw
    step = max(1, _CHUNK // (height * width))
    for first in range(0, len(logits), step):
        some = slice(first, first + step)
        yield some, _resize(logits[some], (height, width))


def _resize(
    maps: Float[Tensor, "channels h w"], size_hw: tuple[int, int]
) -> Float[Tensor, "channels H W"]:
    if maps.shape[1:] == size_hw:
        return maps
    return F.interpolate(maps[None], size=size_hw, mode="bilinear", align_corners=False)[0]
