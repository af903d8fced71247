"""What is evaluated: a frozen backbone, and what its images must look like."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attmask.data.config import DataConfig
from attmask.models.backbone import Backbone
from attmask.models.heads import Head

_ITERATIONS = 3  # of Sinkhorn and Knopp, as in training


@dataclass(frozen=True, eq=False)
class Prototypes:
    """What the teacher assigns images to: softmax((scores - centre) / temperature).

    With the centring `mean` the centre is the one of the training; with `sinkhorn` the training
    keeps none, and the centre is what balances the images that are assigned together.
    """

    head: Head
    centre: Float[Tensor, "K"]
    temperature: float
    centring: Literal["mean", "sinkhorn"] = "mean"

    def assign(self, cls: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        """The probability of each prototype for each of the images, which belong together."""
        return next(self.assign_pieces([cls]))

    def assign_pieces(
        self, pieces: Sequence[Float[Tensor, "_ D"]]
    ) -> Iterator[Float[Tensor, "_ K"]]:
        """The same for images that are too many for one tensor, piece by piece."""
        centre = self.centre if self.centring == "mean" else self._balancing(pieces)
        for cls in pieces:
            yield self._log_shares(cls, centre).exp()

    def _balancing(self, pieces: Sequence[Float[Tensor, "_ D"]]) -> Float[Tensor, "K"]:
        """The centre with which the images are balanced over the prototypes.

        Sinkhorn and Knopp normalise columns (prototypes) and rows (images) in turn, rows last. A
        softmax normalises rows whatever they were before, so all that has to be kept from one
        turn to the next is one number a column: a centre. It starts from raw scores.
        """
        centre = torch.zeros_like(self.centre, dtype=torch.float64)
        for turn in range(_ITERATIONS):
            columns = torch.full_like(centre, -torch.inf)
            for cls in pieces:
                if turn == 0:
                    rows = self._scores(cls) / self.temperature
                else:
                    rows = self._log_shares(cls, centre.to(self.centre.dtype))
                columns = columns.logaddexp(rows.logsumexp(dim=0).double())
            centre += self.temperature * columns
        return centre.to(self.centre.dtype)

    def _log_shares(
        self, cls: Float[Tensor, "B D"], centre: Float[Tensor, "K"]
    ) -> Float[Tensor, "B K"]:
        return ((self._scores(cls) - centre) / self.temperature).log_softmax(dim=-1)

    def _scores(self, cls: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        return self.head.exact_logits(self.head.embed(cls.to(self.centre.device)))


@dataclass(frozen=True, eq=False)
class FrozenModel:
    """A teacher's backbone, or somebody else's, with the images it was made for."""

    name: str
    backbone: Backbone
    image_size: int
    data: DataConfig
    prototypes: Prototypes | None = None
    """None where a backbone came without its head, and for a student."""
    folder: Path | None = None
    """The run it belongs to, if it does: features and cards are kept in it."""
    origin: Mapping[str, Any] = field(default_factory=dict)
    """Where the weights come from: teacher, student, untrained, file or timm; step and epoch."""

    def describe(self, image_size: int | None = None) -> dict[str, Any]:
        """What the network is and what it is shown, for a card; None where sizes vary."""
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
        """A hash of all that makes the network: its weights, and what they do not show."""
        backbone = self.backbone
        eps = getattr(backbone.vit.norm, "eps", None)
        shape = f"{backbone.heads} {backbone.positions} {backbone.layer} {eps}"
        modules: dict[str, nn.Module] = {"backbone": self.backbone}
        if self.prototypes is not None:
            modules["head"] = self.prototypes.head
        found = hashlib.sha256(shape.encode())
        for owner, module in modules.items():
            for name, tensor in sorted(module.state_dict().items()):
                flat = tensor.detach().cpu().contiguous().flatten()
                found.update(f"{owner}.{name} {tuple(tensor.shape)} {tensor.dtype}\n".encode())
                found.update(flat.view(torch.uint8).numpy())
        return found.hexdigest()
