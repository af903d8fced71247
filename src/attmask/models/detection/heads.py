"""The heads of a stage: classes and boxes of regions, and their masks."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torchvision.models.detection.faster_rcnn import FastRCNNConvFCHead
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor

from attmask.models.detection.config import CascadeConfig

CLASS_STD, BOX_STD = 0.01, 0.001


class BoxHead(nn.Module):
    """Regions become logits of the classes and the background, and a change of box per class."""

    def __init__(self, channels: int, classes: int, config: CascadeConfig) -> None:
        super().__init__()
        self.trunk = FastRCNNConvFCHead(
            (channels, config.box_size, config.box_size),
            [config.channels] * config.convs,
            [config.hidden],
            norm_layer=nn.BatchNorm2d,
        )
        self.classes = nn.Linear(config.hidden, classes + 1)
        self.boxes = nn.Linear(config.hidden, classes * 4)
        nn.init.normal_(self.classes.weight, std=CLASS_STD)
        nn.init.normal_(self.boxes.weight, std=BOX_STD)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.zeros_(layer.bias)
                if layer not in (self.classes, self.boxes):
                    nn.init.xavier_uniform_(layer.weight)

    def forward(
        self, regions: Float[Tensor, "n channels size size"]
    ) -> tuple[Float[Tensor, "n outputs"], Float[Tensor, "n classes 4"]]:
        """Logits, the background last, and changes of boxes, both in float32."""
        hidden = self.trunk(regions)
        return self.classes(hidden).float(), self.boxes(hidden).float().unflatten(1, (-1, 4))


class MaskHead(nn.Module):
    """Regions become logits of a mask per class, of twice their side."""

    def __init__(self, channels: int, classes: int, config: CascadeConfig) -> None:
        super().__init__()
        self.trunk = MaskRCNNHeads(channels, [config.channels] * config.convs, dilation=1)
        inputs = config.channels if config.convs else channels
        self.masks = MaskRCNNPredictor(inputs, config.channels, classes)
        for layer in (self.masks.conv5_mask, self.masks.mask_fcn_logits):
            nn.init.zeros_(layer.bias)

    def forward(
        self, regions: Float[Tensor, "n channels size size"]
    ) -> Float[Tensor, "n classes 2*size 2*size"]:
        """Logits, in float32."""
        logits: Tensor = self.masks(self.trunk(regions))
        return logits.float()


def of_class(values: Float[Tensor, "n classes *rest"], labels: Tensor) -> Float[Tensor, "n *rest"]:
    """The values of one class of each row."""
    return values[torch.arange(len(labels), device=labels.device), labels]
