"""The format of timm: model.safetensors and config.json, for `timm.create_model`."""

import json
import re
from pathlib import Path
from typing import Any

import timm
import torch
from safetensors.torch import save_file
from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.exporting.format import Forward
from attmask.exporting.subject import Subject
from attmask.mask import Grid

_PLAIN = "vit_small_patch16_224"
"""The name whose settings are all replaced, for networks that timm has no name of."""


class AsTimm:
    """A folder that `timm.create_model("local-dir:FOLDER", pretrained=True)` takes."""

    library = "timm"
    packages = ("timm", "safetensors")

    def takes_other_sizes(self, subject: Subject) -> bool:
        """timm resizes positions as `positions=size` does."""
        return subject.backbone.positions == "size"

    def write(self, subject: Subject, folder: Path) -> None:
        """Write the weights under timm's names, and the arguments that build the network."""
        save_file(self._tensors(subject), folder / "model.safetensors", {"format": "pt"})
        (folder / "config.json").write_text(json.dumps(self._config(subject), indent=2) + "\n")

    def open(self, subject: Subject, folder: Path) -> Forward:
        """The network as `timm.create_model` builds it."""
        with torch.random.fork_rng(devices=[]):  # timm draws weights before it has them
            vit = timm.create_model(f"local-dir:{folder}", pretrained=True)
        assert isinstance(vit, VisionTransformer)
        vit.eval()

        def forward(images: Tensor) -> dict[str, Tensor]:
            tokens = vit.forward_features(images)
            outputs = {"cls": tokens[:, 0], "patches": tokens[:, vit.num_prefix_tokens :]}
            if subject.classifier is not None:
                outputs["logits"] = vit.forward_head(tokens)
            return outputs

        return forward

    def usage(self, subject: Subject, named: str) -> str:
        """Load it and its transform."""
        given = named if named.startswith("hf-hub:") else f"local-dir:{named}"
        what = "logits" if subject.classes else "features"
        return (
            "import timm\n"
            "from PIL import Image\n\n"
            f'model = timm.create_model("{given}", pretrained=True).eval()\n'
            "transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))\n"
            f'{what} = model(transform(Image.open("image.jpg").convert("RGB"))[None])\n'
        )

    def _grid(self, subject: Subject) -> Grid:
        """The grid of the stored positions: timm resizes them itself, if it does so as we do."""
        if self.takes_other_sizes(subject):
            return subject.trained_grid
        return subject.own_grid()

    def _tensors(self, subject: Subject) -> dict[str, Tensor]:
        vit = subject.vit
        tensors = {
            name: tensor.detach().cpu().clone().contiguous()
            for name, tensor in vit.state_dict().items()
        }
        if vit.pos_embed is not None:
            placed = 0 if vit.no_embed_class else subject.backbone.prefix
            where = [
                vit.pos_embed[:, :placed].detach(),
                subject.patch_positions(self._grid(subject)),
            ]
            tensors["pos_embed"] = torch.cat(where, dim=1).cpu().contiguous()
        if subject.classifier is not None:
            tensors["head.weight"] = subject.classifier.weight.cpu().contiguous()
            tensors["head.bias"] = subject.classifier.bias.cpu().contiguous()
        return tensors

    def _config(self, subject: Subject) -> dict[str, Any]:
        channels = subject.backbone.channels
        pretrained: dict[str, Any] = {
            "input_size": [channels, subject.image_size, subject.image_size],
            "fixed_input_size": not self.takes_other_sizes(subject),
            "interpolation": "bicubic",
            "crop_pct": subject.image_size / subject.shorter_side,
            "crop_mode": "center",
            "mean": subject.mean,
            "std": subject.std,
            "num_classes": len(subject.classes),
            "pool_size": None,
            "classifier": "head",
        }
        if channels == 3:  # only then can timm make another number of channels of it
            pretrained["first_conv"] = "patch_embed.proj"
        arguments = self._arguments(subject)
        config = {
            "architecture": _architecture(subject.vit),
            "num_classes": len(subject.classes),
            "num_features": subject.backbone.width,
            "global_pool": arguments["global_pool"],
            "model_args": arguments,
            "pretrained_cfg": pretrained,
        }
        return {**config, "label_names": list(subject.classes)} if subject.classes else config

    def _arguments(self, subject: Subject) -> dict[str, Any]:
        """What makes timm build this very network."""
        vit, backbone = subject.vit, subject.backbone
        block = backbone.blocks[0]
        assert isinstance(block.attn, Attention)
        patch = backbone.patch_size
        rows, columns = self._grid(subject)
        hidden = int(block.mlp.get_parameter("fc1.weight").shape[0])
        ratio = hidden / backbone.width
        exact = int(backbone.width * ratio) == hidden  # timm rounds the product down
        arguments: dict[str, Any] = {
            "img_size": [rows * patch, columns * patch],
            "patch_size": patch,
            "in_chans": backbone.channels,
            "embed_dim": backbone.width,
            "depth": backbone.depth,
            "num_heads": backbone.heads[0],
            "mlp_ratio": ratio if exact else (hidden + 0.5) / backbone.width,
            "qkv_bias": block.attn.qkv.bias is not None,
            "no_embed_class": vit.no_embed_class,
            "reg_tokens": backbone.prefix - 1,
            "dynamic_img_size": self.takes_other_sizes(subject),
            **self._pooling(subject),
        }
        if not isinstance(block.ls1, nn.Identity):
            arguments["init_values"] = 1.0  # any: the values are among the weights
        return arguments

    def _pooling(self, subject: Subject) -> dict[str, Any]:
        has_norm_after = not isinstance(subject.vit.fc_norm, nn.Identity)
        if subject.classifier is None:
            return {"global_pool": subject.vit.global_pool, "fc_norm": has_norm_after}
        token = subject.classifier.readout.token
        if token == "cls+gap" or has_norm_after:
            raise UserError(
                f"the classifier of {subject.model.name} reads {token}, which no network of timm "
                "does; use --format hf, onnx or torch, or --backbone-only"
            )
        return {"global_pool": "token" if token == "cls" else "avg", "fc_norm": False}


def _architecture(vit: VisionTransformer) -> str:
    """timm's name of the network, without the tag of its weights."""
    known = getattr(vit, "pretrained_cfg", None) or {}
    name = re.sub(r"\..*", "", str(known.get("architecture") or ""))
    return name if name and timm.is_model(name) else _PLAIN
