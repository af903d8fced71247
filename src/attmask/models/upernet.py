"""A segmenter: a backbone with a pyramid, a UperNet head and an auxiliary FCN head."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64, Int
from pydantic import Field
from torch import Tensor, nn
from torchvision.ops import Conv2dNormActivation

from attmask.errors import UserError
from attmask.models.backbone import Backbone
from attmask.models.layers import layers_of_backbone
from attmask.models.pyramid import Pyramid
from attmask.settings import Config, setting

AUXILIARY_LEVEL = 2
"""The map that the auxiliary head reads, counted from 0: the one that is not rescaled."""

CLASSIFIER_STD = 0.01
_LEVELS = 4


class SegmenterConfig(Config):
    """The heads of a segmenter."""

    channels: int | None = setting(
        None,
        "channels of the UperNet head (null: the width of the backbone)",
        paper="the width",
        ge=1,
        le=2**15,
    )
    pool_scales: tuple[Annotated[int, Field(ge=1, le=100)], ...] = setting(
        (1, 2, 3, 6), "sides of the grids that pool the coarsest map", paper="[1, 2, 3, 6]"
    )
    dropout: float = setting(
        0.1, "share of the channels dropped before the classes", paper="0.1", ge=0, lt=1
    )
    auxiliary_channels: int = setting(
        256, "channels of the auxiliary head", paper="256", ge=1, le=2**15
    )
    auxiliary_weight: float = setting(
        0.4, "weight of the loss of the auxiliary head", paper="0.4", ge=0, le=100
    )
    norm_levels: bool = setting(
        False, "put the tokens of all four levels through the final norm", paper="false, iBOT: true"
    )


class Segmenter(nn.Module):
    """Images become logits of the class of each pixel, and in training two losses."""

    def __init__(self, backbone: Backbone, classes: int, config: SegmenterConfig) -> None:
        super().__init__()
        self.backbone = backbone
        width = backbone.width
        self.pyramid = Pyramid(width, backbone.patch_size, backbone.depth, norm=config.norm_levels)
        self.pyramid.freeze_unused_(backbone)
        self.decode = UperNetHead(
            width,
            config.channels or width,
            classes,
            pool_scales=config.pool_scales,
            dropout=config.dropout,
        )
        self.auxiliary = FCNHead(width, config.auxiliary_channels, classes, dropout=config.dropout)
        self.auxiliary_weight = config.auxiliary_weight

    def forward(
        self,
        images: Float[Tensor, "B C H W"],
        labels: Int[Tensor, "B H W"],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted losses of both heads; `keep` is the drop path."""
        if self.training and len(images) == 1 and self.decode.needs_two_images:
            raise UserError(
                "1 image came to a training step of a segmenter, whose batch norm needs 2; "
                "use a larger batch or fewer micro-batches"
            )
        maps = self.pyramid(self.backbone, images, keep)
        auxiliary = pixel_loss(self.auxiliary(maps[AUXILIARY_LEVEL]), labels)
        return {
            "decode": pixel_loss(self.decode(maps), labels),
            "auxiliary": self.auxiliary_weight * auxiliary,
        }

    def logits(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes h w"]:
        """The logits of the UperNet head, at the size of the finest map."""
        logits: Tensor = self.decode(self.pyramid(self.backbone, images))
        return logits

    def prepare(self) -> None:
        """Compute nothing: an engine that hooks calls of the network prepares it at the first."""

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """The layers as timm's layer decay wants them."""
        return layers_of_backbone()


class UperNetHead(nn.Module):
    """Four maps, the coarsest with its pooled surroundings, merged from coarse to fine.

    Unified Perceptual Parsing for Scene Understanding (Xiao et al., ECCV 2018), as in mmseg.
    """

    def __init__(
        self,
        width: int,
        channels: int,
        classes: int,
        *,
        pool_scales: Sequence[int] = (1, 2, 3, 6),
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.pools = nn.ModuleList(
            nn.Sequential(nn.AdaptiveAvgPool2d(scale), _convolution(width, channels, 1))
            for scale in pool_scales
        )
        self.pools_to_one = 1 in pool_scales
        self.bottleneck = _convolution(width + len(pool_scales) * channels, channels, 3)
        finer = range(_LEVELS - 1)
        self.laterals = nn.ModuleList(_convolution(width, channels, 1) for _ in finer)
        self.outputs = nn.ModuleList(_convolution(channels, channels, 3) for _ in finer)
        self.fusion = _convolution(_LEVELS * channels, channels, 3)
        self.classifier = _classifier(channels, classes, dropout)

    @property
    def needs_two_images(self) -> bool:
        """Whether batch norm would see a single value of each channel of a single image."""
        synchronised = any(isinstance(m, nn.SyncBatchNorm) for m in self.pools.modules())
        return self.pools_to_one and not synchronised

    def forward(self, maps: Sequence[Float[Tensor, "B D _ _"]]) -> Float[Tensor, "B classes h w"]:
        """Logits at the size of the first map, which is the finest."""
        coarsest = maps[-1]
        pooled = [_resize(pool(coarsest), coarsest) for pool in self.pools]
        merged = self.bottleneck(torch.cat([coarsest, *pooled], dim=1))
        outputs = [merged]
        for level in reversed(range(_LEVELS - 1)):
            lateral = self.laterals[level](maps[level])
            merged = lateral + _resize(merged, lateral)
            outputs.append(self.outputs[level](merged))
        fine_first = [_resize(output, maps[0]) for output in reversed(outputs)]
        logits: Tensor = self.classifier(self.fusion(torch.cat(fine_first, dim=1)))
        return logits


class FCNHead(nn.Module):
    """One convolution on one map, and the classes."""

    def __init__(self, width: int, channels: int, classes: int, *, dropout: float = 0.1) -> None:
        super().__init__()
        self.convolution = _convolution(width, channels, 3)
        self.classifier = _classifier(channels, classes, dropout)

    def forward(self, level: Float[Tensor, "B D h w"]) -> Float[Tensor, "B classes h w"]:
        """Logits at the size of the map."""
        logits: Tensor = self.classifier(self.convolution(level))
        return logits


def pixel_loss(
    logits: Float[Tensor, "B classes h w"], labels: Int[Tensor, "B H W"]
) -> Float[Tensor, ""]:
    """The cross entropy of each pixel at the size of the labels, which are below 0 where there is
    no class.

    Pixels without a class count as 0 in the mean over all pixels, as in mmseg. So the mean of
    equal micro-batches is that of the batch, whatever number of pixels has a class.
    """
    resized = _resize(logits.float(), labels)
    losses = F.cross_entropy(resized, labels.long().clamp(min=-1), ignore_index=-1, reduction="sum")
    return losses / labels.numel()


def _resize(x: Tensor, like: Tensor) -> Tensor:
    return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=False)


def _convolution(before: int, after: int, side: int) -> Conv2dNormActivation:
    """A convolution without bias, batch norm and ReLU, with the initial weights of mmcv."""
    layers = Conv2dNormActivation(before, after, side)
    nn.init.kaiming_normal_(layers[0].weight, mode="fan_out", nonlinearity="relu")
    return layers


def _classifier(channels: int, classes: int, dropout: float) -> nn.Sequential:
    convolution = nn.Conv2d(channels, classes, kernel_size=1)
    nn.init.normal_(convolution.weight, std=CLASSIFIER_STD)
    assert convolution.bias is not None
    nn.init.zeros_(convolution.bias)
    return nn.Sequential(nn.Dropout2d(dropout), convolution)
