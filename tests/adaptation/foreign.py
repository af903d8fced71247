"""A small network in a weights file, which nobody of us has trained."""

from pathlib import Path

import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer


def write_weights(file: Path, *, seed: int = 5, registers: int = 0) -> Path:
    """A ViT of width 48 with 3 heads and layer scale, for images of 40 pixels (patches of 8)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vit = VisionTransformer(
            img_size=40,
            patch_size=8,
            embed_dim=48,
            depth=2,
            num_heads=3,
            num_classes=0,
            init_values=0.5,
            reg_tokens=registers,
            no_embed_class=registers > 0,
        )
        for parameter in vit.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    save_file(vit.state_dict(), file, metadata={"heads": "3"})
    return file
