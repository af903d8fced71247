"""The network that is exported: a backbone, maybe with its classifier, and the images it takes."""

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.crops import RESIZE_TO_CROP
from attmask.evaluation.model import FrozenModel
from attmask.mask import Grid
from attmask.models.backbone import Backbone, patches_along
from attmask.models.positions import resize_positions

OUTPUTS = ("cls", "patches", "attention", "logits")


@dataclass(frozen=True, eq=False)
class Subject:
    """A frozen network and the side of the images that it is exported for."""

    model: FrozenModel
    image_size: int

    @classmethod
    def of(
        cls, model: FrozenModel, image_size: int | None = None, *, backbone_only: bool = False
    ) -> "Subject":
        """The network of a checkpoint; the size is by default its own."""
        size = image_size or model.image_size
        patches_along(size, model.backbone.patch_size)
        if backbone_only:
            model = replace(model, classifier=None)
        if model.classifier is not None and model.classifier.readout.blocks != 1:
            raise UserError(
                f"the classifier of {model.name} reads {model.classifier.readout.blocks} blocks, "
                "and exports have one that reads the last; use --backbone-only"
            )
        return cls(model, size)

    @property
    def backbone(self) -> Backbone:
        """The backbone."""
        return self.model.backbone

    @property
    def vit(self) -> VisionTransformer:
        """timm's plain ViT in the backbone; an error if it is another class."""
        vit = self.model.backbone.vit
        if not isinstance(vit, VisionTransformer):
            raise UserError(
                f"{self.model.name} has rotary positions (timm's class {type(vit).__name__}), "
                "which this format of attmask does not hold; use --format onnx or torch"
            )
        return vit

    @property
    def classifier(self) -> LinearClassifier | None:
        """The classifier, if there is one and it is exported."""
        return self.model.classifier

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return () if self.classifier is None else self.classifier.classes

    @property
    def trained_grid(self) -> Grid:
        """The grid that the network has position embeddings for."""
        rows, columns = self.backbone.vit.patch_embed.grid_size
        return int(rows), int(columns)

    @property
    def shorter_side(self) -> int:
        """What the shorter side of an image is resized to before the centre is cropped."""
        return round(self.image_size * RESIZE_TO_CROP)

    @property
    def mean(self) -> list[float]:
        """The mean of each channel."""
        return _each(self.model.data.mean, self.backbone.channels)

    @property
    def std(self) -> list[float]:
        """The standard deviation of each channel."""
        return _each(self.model.data.std, self.backbone.channels)

    def patch_positions(self, grid: Grid) -> Float[Tensor, "1 N D"]:
        """The position embeddings of patches on a grid, resized as this network does it."""
        vit = self.vit
        if vit.pos_embed is None:
            return torch.zeros(1, grid[0] * grid[1], self.backbone.width)
        placed = 0 if vit.no_embed_class else self.backbone.prefix
        own = vit.pos_embed[:, placed:].detach()
        return resize_positions(own, self.trained_grid, grid, self.backbone.positions)

    def for_one_size(self) -> "Subject":
        """The same network with position embeddings of the exported size, which are added as they
        are: resizing them is translated differently by each runtime."""
        grid, own = self.own_grid(), self.backbone.vit.pos_embed
        if own is None or grid == self.trained_grid:
            return self
        backbone = copy.deepcopy(self.backbone)
        prefix = own[:, : own.shape[1] - self.trained_grid[0] * self.trained_grid[1]].detach()
        resized = torch.cat([prefix, self.patch_positions(grid)], dim=1)
        backbone.vit.pos_embed = nn.Parameter(resized)
        backbone.vit.patch_embed.grid_size = grid
        return replace(self, model=replace(self.model, backbone=backbone))

    def own_grid(self) -> Grid:
        """The grid of an image of the exported size."""
        return self.backbone.grid(self.image_size, self.image_size)

    def describe(self) -> dict[str, Any]:
        """The network and its input as JSON, for the record of an export."""
        return {
            **self.model.describe(self.image_size),
            "resize shorter side": self.shorter_side,
            "interpolation": "bicubic",
            "attention of block": self.backbone.layer + 1,
            "classes": list(self.classes),
            "sha256": self.model.digest,
        }


class Outputs(nn.Module):
    """The network as one function: normalised images become what is exported, by name."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.backbone = subject.backbone
        self.weight: Tensor
        self.bias: Tensor
        self.token = "" if subject.classifier is None else subject.classifier.readout.token
        if subject.classifier is not None:
            self.register_buffer("weight", subject.classifier.weight.clone())
            self.register_buffer("bias", subject.classifier.bias.clone())

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        """`[CLS]`, patches, attention and, with a classifier, logits."""
        tokens = self.backbone(images)
        outputs = {"cls": tokens.cls, "patches": tokens.patches, "attention": tokens.attention}
        if self.token:
            parts = {"cls": tokens.cls, "gap": tokens.patches.mean(dim=1)}
            read = torch.cat([parts[part] for part in self.token.split("+")], dim=1)
            outputs["logits"] = nn.functional.linear(read, self.weight, self.bias)
        return outputs


def _each(values: tuple[float, ...], channels: int) -> list[float]:
    return [float(value) for value in (values * channels if len(values) == 1 else values)]
