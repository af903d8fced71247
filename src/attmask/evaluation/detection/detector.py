"""A trained detector: its network, its classes, and how it is shown whole images."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from attmask.evaluation.digest import weights_digest
from attmask.evaluation.features.forward import Autocast, frozen, normalise
from attmask.evaluation.metrics.detected import Found
from attmask.evaluation.showing import Showing
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import paste_masks
from attmask.models.detection.padding import padded

_MOST_PIXELS = 2**26  # of all masks that are pasted at a time


@dataclass(frozen=True, eq=False)
class TrainedDetector:
    """A detector with the names of its classes and their ids in annotation files."""

    network: Detector
    names: tuple[str, ...]
    category_ids: tuple[int, ...]
    showing: Showing
    has_masks: bool = True
    """Whether it has learned masks; otherwise they are filled boxes."""

    def find(
        self, shown: UInt8[Tensor, "C h w"], size_hw: tuple[int, int], autocast: Autocast
    ) -> Found:
        """The objects in an image of this size, from the image as it is shown."""
        network, data = self.network, self.showing.data
        shown_hw = shown.shape[1], shown.shape[2]
        with frozen(network), autocast():
            image = normalise(shown.to(network.backbone.device)[None], data.mean, data.std)[0]
            (found,) = network.detect(padded([image], network.backbone.patch_size), [shown_hw])
        y, x = (own / seen for own, seen in zip(size_hw, shown_hw, strict=True))
        boxes = found.boxes.float() * torch.tensor([x, y, x, y], device=found.boxes.device)
        masks = _pasted(found.masks, boxes, size_hw) if self.has_masks else None
        return Found.of(boxes, found.scores, found.labels, masks)

    @cached_property
    def digest(self) -> str:
        """A hash of the weights, for cards."""
        return weights_digest({"network": self.network})


def _pasted(
    masks: Float[Tensor, "n M M"], boxes: Float[Tensor, "n 4"], size_hw: tuple[int, int]
) -> Iterator[Bool[Tensor, "_ H W"]]:
    """The masks in the size of the image, as many at a time as fit into the memory."""
    count = max(1, _MOST_PIXELS // (size_hw[0] * size_hw[1]))
    for some, their_boxes in zip(masks.split(count), boxes.split(count), strict=True):
        yield paste_masks(some, their_boxes, size_hw)
