"""A mask over patches that knows on the host how many patches each image hides."""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64
from torch import Tensor

from attmask.host import to_device

Grid = tuple[int, int]
"""Rows and columns of patches."""


class HiddenPatches(NamedTuple):
    """The indices of all M hidden patches, image after image."""

    image: Int[Tensor, "M"]
    patch: Int[Tensor, "M"]
    slot: Int[Tensor, "M"]
    """Its number among the hidden patches of its image, from 0."""


class Mask:
    """Which patches of each image are hidden, with the number of each image on the host.

    With these numbers, hidden patches are gathered without waiting for the device.
    """

    def __init__(self, hidden: Bool[Tensor, "B N"], counts: Int64[np.ndarray, " B"]) -> None:
        self.hidden = hidden
        self.counts = counts

    @classmethod
    def count(cls, hidden: Bool[Tensor, "B N"]) -> "Mask":
        """Count the hidden patches of a mask; this waits for the device it is on."""
        return cls(hidden, hidden.sum(dim=1).cpu().numpy())

    @classmethod
    def join(cls, masks: "list[Mask]") -> "Mask":
        """The masks of several views as one, view after view."""
        hidden = torch.cat([mask.hidden for mask in masks])
        return cls(hidden, np.concatenate([mask.counts for mask in masks]))

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def total(self) -> int:
        """The number of hidden patches of all images."""
        return int(self.counts.sum())

    @cached_property
    def order(self) -> Int64[Tensor, "B N"]:
        """The patches of each image, hidden ones first, each in the order of the grid."""
        return self.hidden.to(torch.uint8).argsort(dim=1, descending=True, stable=True)

    @cached_property
    def places(self) -> HiddenPatches:
        """The indices of the hidden patches."""
        image = np.repeat(np.arange(len(self.counts)), self.counts)
        slot = np.arange(len(image)) - np.repeat(self.counts.cumsum() - self.counts, self.counts)
        there = to_device(np.stack([image, slot]), self.hidden.device)
        return HiddenPatches(there[0], self.order[there[0], there[1]], there[1])
