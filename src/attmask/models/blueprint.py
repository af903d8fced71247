"""How to build the backbone of a saved network again, before its weights are loaded."""

from collections.abc import Mapping

import timm
import torch
from torch import Tensor

from attmask.models.architectures import supported
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.models.importing.architecture import network_for
from attmask.models.importing.weights import EPS
from attmask.models.positions import Resize
from attmask.models.rotary_weights import eva_network_for, has_rotary_positions
from attmask.settings import Config, setting


class Blueprint(Config):
    """The architecture of a backbone: settings of a run, a name of timm, or its own tensors."""

    config: BackboneConfig | None = setting(None, "settings, if a run of attmask made it")
    name: str | None = setting(None, "timm's name, if it came from there")
    heads: int | None = setting(None, "attention heads, if it came from a file")
    eps: float = setting(EPS, "epsilon of the layer norms, if it came from a file", gt=0, lt=1)
    positions: Resize = setting("size", "how position embeddings are resized")
    image_size: int = setting(224, "side of the images that it expects", ge=1)
    channels: int = setting(3, "channels of these images", ge=1)
    layer: int | None = setting(None, "block whose attention is read, counted from 1")

    def build(self, tensors: Mapping[str, Tensor], where: str) -> Backbone:
        """The backbone with these weights, which have its own names."""
        with torch.device("meta"):  # a network of any size takes no memory until its weights fit
            backbone = self._without_weights(tensors, where)
        backbone.load_state_dict(dict(tensors), assign=True)
        return backbone

    def _without_weights(self, tensors: Mapping[str, Tensor], where: str) -> Backbone:
        if self.config is not None:
            plain = self.config.model_copy(update={"pretrained": False})
            return build_backbone(
                plain, image_size=self.image_size, channels=self.channels, layer=self.layer
            )
        if self.name is not None:
            vit = supported(timm.create_model(self.name, num_classes=0))
        else:
            own = {k.removeprefix("vit."): t for k, t in tensors.items() if k.startswith("vit.")}
            if has_rotary_positions(own):
                vit = eva_network_for(where, own, self.heads, eps=self.eps)
            else:
                vit = network_for(where, own, self.heads, eps=self.eps)
        return Backbone(vit, layer=self.layer, positions=self.positions)
