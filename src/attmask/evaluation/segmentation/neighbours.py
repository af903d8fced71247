"""Nearest neighbours of patches: each patch takes the classes of the most similar known ones."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.metrics.neighbours import nearest
from attmask.randomness import uniform


@dataclass(frozen=True, eq=False)
class PatchBank:
    """Features of patches, and the share of each class among the pixels of each."""

    vectors: Float[Tensor, "M D"]
    shares: Float[Tensor, "M C"]

    def __len__(self) -> int:
        return len(self.vectors)

    @classmethod
    def joined(cls, parts: Iterable["PatchBank"], width: int, classes: int) -> "PatchBank":
        """One bank of all patches, in order; of none without any part."""
        some = [*parts, cls(torch.zeros(0, width), torch.zeros(0, classes))]
        return cls(
            torch.cat([part.vectors for part in some]), torch.cat([part.shares for part in some])
        )

    def votes(
        self,
        queries: Float[Tensor, "Q D"],
        *,
        k: int,
        temperature: float,
        device: torch.device | None = None,
    ) -> Float[Tensor, "Q C"]:
        """The mean of the shares of the k nearest, weighted by exp(cosine / temperature)."""
        votes = torch.zeros(len(queries), self.shares.shape[1])
        done = 0
        for similarity, index in nearest(self.vectors, queries, min(k, len(self)), device=device):
            weights = (similarity / temperature).softmax(dim=1)
            here = votes[done : done + len(index)]
            for neighbour in range(index.shape[1]):  # all at once would need k times the memory
                here += weights[:, neighbour, None] * self.shares[index[:, neighbour]]
            done += len(index)
        return votes


def bank_of(
    patches: Float[Tensor, "N D"], shares: Float[Tensor, "N C"], *, most: int, image: int, seed: int
) -> PatchBank:
    """The labelled patches of an image, or `most` of them, drawn by counter."""
    labelled = np.flatnonzero(shares.any(dim=1).numpy())
    kept = torch.from_numpy(_drawn(labelled, most, image, seed))
    return PatchBank(patches[kept].cpu(), shares[kept])


def patches_per_image(images: int, most: int) -> int:
    """How many patches of each image a bank of at most `most` patches takes."""
    if most < images:
        raise UserError(
            f"a bank of {most} patches is too small for {images} training images; set "
            "max_bank_patches to at least one per image, or a lower max_train_images"
        )
    return most // images


def _drawn(
    labelled: Int64[np.ndarray, " n"], most: int, image: int, seed: int
) -> Int64[np.ndarray, " m"]:
    if len(labelled) <= most:
        return labelled
    chance = uniform("patches of a bank", seed, image, labelled)
    return np.sort(labelled[chance.argsort(kind="stable")[:most]])
