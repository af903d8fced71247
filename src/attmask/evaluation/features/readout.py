"""Readouts of a frozen network: embeddings, patch maps and attention maps."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.models.backbone import Backbone
from attmask.settings import Config, setting

SizeHW = tuple[int, int]


@runtime_checkable
class Readout(Protocol):
    """A function from normalised images to values, one row per image."""

    def __call__(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B ..."]:
        """The values of each image."""

    def shape(self, backbone: Backbone, size_hw: SizeHW | None) -> tuple[int, ...]:
        """The shape of the values of one image of this size; None is any size."""

    def describe(self, backbone: Backbone) -> dict[str, Any]:
        """Everything except network and images that determines the values, as JSON."""


@runtime_checkable
class PartialReadout(Protocol):
    """A readout that can be a slice of the values of a larger one."""

    def part_of(self, described: Mapping[str, Any], backbone: Backbone) -> slice | None:
        """Its slice of the first axis of another readout's values, or None."""


class Embedding(Config):
    """One vector per image: `[CLS]`, the mean of the patches or both, of one or several blocks."""

    token: Literal["cls", "gap", "cls+gap"] = setting(
        "cls", "[CLS], the mean of the patches (gap), or both, concatenated", paper="cls"
    )
    blocks: int = setting(
        1, "number of last blocks, whose tokens are concatenated", paper="1, linear: 4", ge=1
    )
    norm_gap: bool = setting(
        False, "apply the final norm to the patches before their mean", paper="false"
    )

    def __call__(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """One vector for each image."""
        if self.token == "cls" and self.blocks == 1:
            return backbone.summary(images).cls
        outputs = backbone.last_outputs(images, self.blocks)
        tokens: list[Tensor] = []
        if "cls" in self.token:
            tokens.append(backbone.vit.norm(outputs[:, :, 0]))
        if "gap" in self.token:
            patches = outputs[:, :, backbone.prefix :]
            tokens.append((backbone.vit.norm(patches) if self.norm_gap else patches).mean(dim=2))
        return torch.cat(tokens, dim=2).transpose(0, 1).flatten(1)

    def width_per_block(self, backbone: Backbone) -> int:
        """The length of what one block gives."""
        return backbone.width * (self.token.count("+") + 1)

    def width(self, backbone: Backbone) -> int:
        """The length of a vector."""
        if self.blocks > backbone.depth:
            raise UserError(
                f"blocks={self.blocks} is more than the network has, {backbone.depth}; "
                f"use at most {backbone.depth}"
            )
        return self.blocks * self.width_per_block(backbone)

    def shape(self, backbone: Backbone, size_hw: SizeHW | None) -> tuple[int, ...]:
        """The length of a vector, which does not depend on the image size."""
        return (self.width(backbone),)

    def describe(self, backbone: Backbone) -> dict[str, Any]:
        """Its own fields."""
        return {"readout": "embedding", **self.model_dump()}

    def part_of(self, described: Mapping[str, Any], backbone: Backbone) -> slice | None:
        """The last columns of the same embedding of more blocks."""
        more = described.get("blocks", 0)
        same = {**self.describe(backbone), "blocks": more}
        if described != same or more <= self.blocks:
            return None
        width = self.width_per_block(backbone)
        return slice((more - self.blocks) * width, more * width)

    def fitting(self, backbone: Backbone) -> tuple["Embedding", tuple[str, ...]]:
        """This readout limited to the blocks that the network has, with a note if it changed."""
        if self.blocks <= backbone.depth:
            return self, ()
        fewer = self.model_copy(update={"blocks": backbone.depth})
        return fewer, (
            f"the features are those of {backbone.depth} instead of {self.blocks} blocks, because "
            f"the network has only {backbone.depth}",
        )


CLS = Embedding()


class PatchMaps(Config):
    """The patch tokens of one or several blocks as maps: layers, channels, rows, columns."""

    layers: tuple[int, ...] = setting(
        (-1,), "blocks, counted from 1; -1 is the last block", min_length=1
    )
    norm: bool = setting(True, "apply the final norm to the tokens")

    def __call__(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B L D rows cols"]:
        """The maps of each image."""
        layers = layer_numbers(self.layers, backbone)
        outputs = backbone.outputs(images, layers, norm=self.norm)
        patches = outputs[:, :, backbone.prefix :]
        grid = backbone.grid(*images.shape[-2:])
        maps: Tensor = patches.permute(1, 0, 3, 2).unflatten(3, grid)
        return maps

    def shape(self, backbone: Backbone, size_hw: SizeHW | None) -> tuple[int, ...]:
        """Layers, channels, rows and columns."""
        layers = layer_numbers(self.layers, backbone)
        return len(layers), backbone.width, *_grid(backbone, size_hw, "patch maps")

    def describe(self, backbone: Backbone) -> dict[str, Any]:
        """Its own fields, with layers counted from 1."""
        layers = list(layer_numbers(self.layers, backbone))
        return {"readout": "patch maps", "layers": layers, "norm": self.norm}

    def part_of(self, described: Mapping[str, Any], backbone: Backbone) -> slice | None:
        """The same consecutive layers among more layers."""
        mine = self.describe(backbone)
        theirs = described.get("layers", [])
        if described != {**mine, "layers": theirs} or theirs == mine["layers"]:
            return None
        wanted = mine["layers"]
        for first in range(len(theirs) - len(wanted) + 1):
            if theirs[first : first + len(wanted)] == wanted:
                return slice(first, first + len(wanted))
        return None


class AttentionMaps(Config):
    """The attention of `[CLS]` to each patch in one block, averaged over heads or per head."""

    layer: int | None = setting(None, "block, counted from 1 (null: the one used for masking)")
    heads: Literal["mean", "each"] = setting("mean", "average the heads, or return each of them")
    fit: bool = setting(False, "resize images to the nearest whole number of patches")

    def __call__(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B ..."]:
        """The maps of each image."""
        size_hw = (images.shape[-2], images.shape[-1])
        wanted = self._fitted(backbone, size_hw)
        if wanted != size_hw:
            images = functional.interpolate(images, size=wanted, mode="bicubic", antialias=True)
        layer = None if self.layer is None else layer_numbers((self.layer,), backbone)[0]
        heads = backbone.attention_heads(images, layer)
        maps: Tensor = heads.unflatten(2, backbone.grid(*wanted))
        return maps.mean(dim=1) if self.heads == "mean" else maps

    def shape(self, backbone: Backbone, size_hw: SizeHW | None) -> tuple[int, ...]:
        """Rows and columns, with `heads=each` after the number of heads."""
        fitted = None if size_hw is None else self._fitted(backbone, size_hw)
        rows, cols = _grid(backbone, fitted, "attention maps")
        if self.heads == "mean":
            return rows, cols
        layer = backbone.layer + 1 if self.layer is None else self.layer
        return backbone.heads[layer_numbers((layer,), backbone)[0] - 1], rows, cols

    def describe(self, backbone: Backbone) -> dict[str, Any]:
        """Its own fields, with the layer counted from 1."""
        layer = backbone.layer + 1 if self.layer is None else self.layer
        number = layer_numbers((layer,), backbone)[0]
        return {"readout": "attention maps", **self.model_dump(), "layer": number}

    def _fitted(self, backbone: Backbone, size_hw: SizeHW) -> SizeHW:
        if not self.fit:
            return size_hw
        patch = backbone.patch_size
        height, width = (max(1, round(side / patch)) * patch for side in size_hw)
        return height, width


@dataclass(frozen=True)
class MultiScale:
    """The L2-normalised mean of an embedding over several scales of the image."""

    readout: Embedding = CLS
    scales: tuple[float, ...] = (1.0,)
    equal_scales: bool = False
    """Whether the embedding of each scale is L2-normalised before averaging."""

    def __call__(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """The embedding of each image; with a single scale it is not normalised."""
        patch = backbone.patch_size
        read = [
            self.readout(backbone, _whole_patches(_scaled(images, scale, patch), patch)).float()
            for scale in self.scales
        ]
        if len(read) == 1:
            return read[0]
        if self.equal_scales:
            read = [functional.normalize(vectors, dim=1) for vectors in read]
        return functional.normalize(torch.stack(read).mean(dim=0), dim=1)

    def shape(self, backbone: Backbone, size_hw: SizeHW | None) -> tuple[int, ...]:
        """The shape of the embedding."""
        return self.readout.shape(backbone, size_hw)

    def describe(self, backbone: Backbone) -> dict[str, Any]:
        """Its own fields."""
        own = {**asdict(self), "scales": list(self.scales)}
        return {**own, "readout": "multi-scale", "of": self.readout.describe(backbone)}


def layer_numbers(layers: tuple[int, ...], backbone: Backbone) -> tuple[int, ...]:
    """Convert layers, of which negative ones count from the end, to 1 to depth."""
    depth = backbone.depth
    numbers = tuple(layer if layer > 0 else depth + 1 + layer for layer in layers)
    wrong = [n for n, number in zip(layers, numbers, strict=True) if not 1 <= number <= depth]
    if wrong:
        raise UserError(
            f"layer {wrong[0]} does not exist; use 1 to {depth}, or -1 to -{depth} from the end"
        )
    return numbers


def _grid(backbone: Backbone, size_hw: SizeHW | None, what: str) -> tuple[int, int]:
    if size_hw is None:
        raise UserError(
            f"{what} of images of different sizes do not fit into one array; "
            "use a crop of one size, or stream them"
        )
    return backbone.grid(*size_hw)


def _scaled(
    images: Float[Tensor, "B C height width"], scale: float, patch: int
) -> Float[Tensor, "B C h w"]:
    """Resize images by a factor; sides shorter than a patch are enlarged to one patch."""
    sides = [int(side * scale) for side in images.shape[-2:]]
    if min(sides) < patch:
        return functional.interpolate(images, [max(side, patch) for side in sides], mode="bilinear")
    if scale == 1:
        return images
    return functional.interpolate(images, scale_factor=scale, mode="bilinear")


def _whole_patches(
    images: Float[Tensor, "B C height width"], patch: int
) -> Float[Tensor, "B C h w"]:
    """Crop the right and the bottom to whole patches, as in DINO."""
    height, width = (side - side % patch for side in images.shape[-2:])
    return images[..., :height, :width]
