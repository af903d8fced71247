"""A trained segmenter: its network, its classes, and how it is shown whole images."""

from dataclasses import dataclass, field
from functools import cached_property

from jaxtyping import Int64, UInt8
from torch import Tensor

from attmask.evaluation.digest import weights_digest
from attmask.evaluation.features.forward import Autocast, frozen, normalise
from attmask.evaluation.segmentation.inference import Inference, InferenceConfig
from attmask.evaluation.showing import Showing
from attmask.models.upernet import Segmenter


@dataclass(frozen=True, eq=False)
class TrainedSegmenter:
    """A segmenter with the names of its classes and their values in mask files."""

    network: Segmenter
    names: tuple[str, ...]
    values: tuple[int, ...]
    showing: Showing
    inference: InferenceConfig = field(default_factory=InferenceConfig)

    def labels(
        self, shown: UInt8[Tensor, "C h w"], size_hw: tuple[int, int], autocast: Autocast
    ) -> Int64[Tensor, "H W"]:
        """The class of each pixel of an image of this size, from the image as it is shown."""
        network, data = self.network, self.showing.data
        with frozen(network), autocast():
            image = normalise(shown.to(network.backbone.device)[None], data.mean, data.std)[0]
            inference = Inference(network.logits, network.backbone.patch_size, self.inference)
            return inference.labels(image, size_hw).cpu()

    @cached_property
    def digest(self) -> str:
        """A hash of the weights, for cards."""
        return weights_digest({"network": self.network})
