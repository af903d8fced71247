"""A trained detector: its network, its classes, and how it is shown whole images."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import UInt8
from torch import Tensor

from attmask.evaluation.digest import weights_digest
from attmask.evaluation.features.forward import Autocast, frozen, normalise
from attmask.evaluation.metrics.detected import Found
from attmask.evaluation.showing import Showing
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import paste_masks
from attmask.models.detection.padding import padded


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
        masks = paste_masks(found.masks, boxes, size_hw) if self.has_masks else None
        return Found.of(boxes, found.scores, found.labels, masks)

    @cached_property
    def digest(self) -> str:
        """A hash of the weights, for cards."""
        return weights_digest({"network": self.network})
