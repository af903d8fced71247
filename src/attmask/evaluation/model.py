"""A frozen backbone with its input size and preprocessing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attmask.data.config import DataConfig
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.digest import weights_digest
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.models.backbone import Backbone
from attmask.models.blueprint import Blueprint
from attmask.models.heads import Head

_ITERATIONS = 3  # of Sinkhorn-Knopp, as in training


@dataclass(frozen=True, eq=False)
class Prototypes:
    """The teacher's prototypes; assignments are softmax((logits - centre) / temperature).

    With `mean` centring the centre is the one from training. With `sinkhorn` centring training
    keeps no centre; it is computed such that the assigned images are balanced over the prototypes.
    """

    head: Head
    centre: Float[Tensor, "K"]
    temperature: float
    centring: Literal["mean", "sinkhorn"] = "mean"

    def assign(self, cls: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        """The probability of each prototype for each image; the images are balanced together."""
        return next(self.assign_pieces([cls]))

    def assign_pieces(
        self, pieces: Sequence[Float[Tensor, "_ D"]]
    ) -> Iterator[Float[Tensor, "_ K"]]:
        """The same as `assign`, piece by piece, for more images than fit in one tensor."""
        centre = self.centre if self.centring == "mean" else self._balancing_centre(pieces)
        for cls in pieces:
            yield self._log_probabilities(cls, centre).exp()

    def _balancing_centre(self, pieces: Sequence[Float[Tensor, "_ D"]]) -> Float[Tensor, "K"]:
        """The centre that balances the images over the prototypes.

        Sinkhorn-Knopp normalises columns (prototypes) and rows (images) in turn, rows last. The
        softmax normalises the rows, so one number per column, the centre, is enough to carry from
        one iteration to the next. The first iteration uses the raw logits.
        """
        centre = torch.zeros_like(self.centre, dtype=torch.float64)
        for turn in range(_ITERATIONS):
            columns = torch.full_like(centre, -torch.inf)
            for cls in pieces:
                if turn == 0:
                    rows = self._logits(cls) / self.temperature
                else:
                    rows = self._log_probabilities(cls, centre.to(self.centre.dtype))
                columns = columns.logaddexp(rows.logsumexp(dim=0).double())
            centre += self.temperature * columns
        return centre.to(self.centre.dtype)

    def _log_probabilities(
        self, cls: Float[Tensor, "B D"], centre: Float[Tensor, "K"]
    ) -> Float[Tensor, "B K"]:
        return ((self._logits(cls) - centre) / self.temperature).log_softmax(dim=-1)

    def _logits(self, cls: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        return self.head.exact_logits(self.head.embed(cls.to(self.centre.device)))


@dataclass(frozen=True, eq=False)
class FrozenModel:
    """A frozen backbone from any origin, with its input size and normalisation."""

    name: str
    backbone: Backbone
    image_size: int
    data: DataConfig
    prototypes: Prototypes | None = None
    """None if the backbone came without a head, and for a student."""
    folder: Path | None = None
    """The run it belongs to, if any; its features and cards are saved there."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where the weights come from: teacher, student, untrained, file or timm; step and epoch, or
    the layout of the file and which of its tensors were used."""
    blueprint: Blueprint = field(default_factory=Blueprint)
    """How to build the backbone again."""
    classifier: LinearClassifier | None = None
    """The classifier that was trained together with the backbone, if any; `digest` is without."""
    segmenter: TrainedSegmenter | None = None
    """The segmenter that was trained together with the backbone, if any."""
    detector: TrainedDetector | None = None
    """The detector that was trained together with the backbone, if any."""

    def describe(self, image_size: int | None = None) -> dict[str, Any]:
        """The network and its input, for a card; `image_size` is None if sizes vary."""
        backbone = self.backbone
        return {
            **self.origin,
            "image size": image_size,
            "patch size": backbone.patch_size,
            "width": backbone.width,
            "depth": backbone.depth,
            "heads": backbone.heads[0] if len(set(backbone.heads)) == 1 else list(backbone.heads),
            "registers": backbone.prefix - 1,
            "positions": backbone.positions,
            "channels": backbone.channels,
            "mean": list(self.data.mean),
            "std": list(self.data.std),
        }

    @cached_property
    def digest(self) -> str:
        """A hash of the weights and of everything else that determines the features."""
        backbone = self.backbone
        eps = getattr(backbone.vit.norm, "eps", None)
        shape = f"{backbone.heads} {backbone.positions} {backbone.layer} {eps}"
        modules: dict[str, nn.Module] = {"backbone": self.backbone}
        if self.prototypes is not None:
            modules["head"] = self.prototypes.head
        return weights_digest(modules, shape)
