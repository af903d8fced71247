"""What is evaluated: a frozen backbone, and what its images must look like."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attmask.data.sources import DataConfig
from attmask.models.backbone import Backbone
from attmask.models.heads import Head


@dataclass(frozen=True, eq=False)
class Prototypes:
    """What the teacher assigns images to: softmax((scores - centre) / temperature)."""

    head: Head
    centre: Float[Tensor, "K"]
    temperature: float

    def assign(self, cls: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        """The probability of each prototype for each image."""
        scores = self.head.exact_scores(self.head.embed(cls))
        return ((scores - self.centre) / self.temperature).softmax(dim=-1)


@dataclass(frozen=True, eq=False)
class Subject:
    """A teacher's backbone, or somebody else's, with the images it was made for."""

    name: str
    backbone: Backbone
    image_size: int
    data: DataConfig
    prototypes: Prototypes | None = None
    """None where a backbone came without its head."""
    folder: Path | None = None
    """The run it belongs to, if it does: features and cards are kept in it."""

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
