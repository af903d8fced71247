"""How a picture becomes a vector: which pixels are shown, and what is read of the network."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.features.forward import crop_pixels
from attmask.models.backbone import Backbone
from attmask.settings import Config, setting


class Reading(Config):
    """What is read of the network."""

    token: Literal["cls", "gap"] = setting(
        "cls", "[CLS] or the mean of the patches (gap)", paper="cls"
    )
    blocks: int = setting(1, "of the last so many blocks, side by side", paper="1, linear: 4", ge=1)
    norm_gap: bool = setting(
        False, "whether patches go through the final norm before their mean", paper="false"
    )

    def __call__(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """One vector for each image."""
        if self.token == "cls" and self.blocks == 1:
            return backbone.summary(images).cls
        outputs = backbone.last_outputs(images, self.blocks)
        if self.token == "cls":
            tokens = backbone.vit.norm(outputs[:, :, 0])
        else:
            patches = outputs[:, :, backbone.prefix :]
            tokens = (backbone.vit.norm(patches) if self.norm_gap else patches).mean(dim=2)
        side_by_side: Tensor = tokens.transpose(0, 1).flatten(1)
        return side_by_side

    def width(self, backbone: Backbone) -> int:
        """The length of a vector."""
        if self.blocks > backbone.depth:
            raise UserError(
                f"the last {self.blocks} blocks were asked for, the network has {backbone.depth}; "
                f"use at most {backbone.depth}"
            )
        return self.blocks * backbone.width


CLS = Reading()


@runtime_checkable
class Encoding(Protocol):
    """How a picture becomes a vector. Worker processes get a copy, so it must be cheap to send."""

    @property
    def batched(self) -> bool:
        """Whether all pictures have the same size once cropped; else they go one by one."""

    def crop(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """What is shown of image `index` of the source."""

    def vectors(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """What is read, of normalised images."""

    def width(self, backbone: Backbone) -> int:
        """The length of a vector."""

    def describe(self) -> dict[str, Any]:
        """All that the vectors depend on beside network and pictures, as JSON."""


@dataclass(frozen=True)
class CenterCrop:
    """The usual way: resize the short side to 256/224 of the crop, bicubic, keep the centre."""

    size: int
    reading: Reading = CLS
    flipped: bool = False

    @property
    def batched(self) -> bool:
        """All crops have one size."""
        return True

    def crop(
        self, pixels: UInt8[np.ndarray, "H W C"], index: int
    ) -> UInt8[Tensor, "C height width"]:
        """The centre crop, mirrored if asked."""
        cropped = crop_pixels(pixels, self.size)
        return cropped.flip(-1) if self.flipped else cropped

    def vectors(
        self, backbone: Backbone, images: Float[Tensor, "B C height width"]
    ) -> Float[Tensor, "B W"]:
        """What `reading` reads."""
        return self.reading(backbone, images)

    def width(self, backbone: Backbone) -> int:
        """As wide as what is read."""
        return self.reading.width(backbone)

    def describe(self) -> dict[str, Any]:
        """Its own fields."""
        return {"crop": "centre", **asdict(self), "reading": self.reading.model_dump()}
