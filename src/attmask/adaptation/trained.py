"""Which parameters of a student are trained, and at which share of the learning rate."""

import re

from torch import nn
from torch.optim import AdamW

from attmask.adaptation.config import AdaptConfig
from attmask.adaptation.lora import add_updates_
from attmask.errors import UserError
from attmask.models.backbone import Backbone
from attmask.models.layers import layers_of_backbone
from attmask.models.network import Student
from attmask.optim import OptimConfig, is_decayed

_MASK_TOKEN = "backbone.mask_token"


def choose_trained_(backbone: Backbone, config: AdaptConfig) -> None:
    """Freeze what is not to be trained, and add updates of low rank where these are asked for."""
    count = backbone.depth if config.blocks is None else config.blocks
    if count > backbone.depth:
        raise UserError(
            f"adapt.blocks={count}, but the backbone has {backbone.depth} blocks; use 1 to "
            f"{backbone.depth}"
        )
    blocks = backbone.blocks[backbone.depth - count :]
    if config.lora_rank is not None:
        add_updates_(backbone, config, blocks)
    elif config.blocks is not None:
        backbone.requires_grad_(False)
        backbone.mask_token.requires_grad_(True)
        for part in (*blocks, backbone.vit.norm):
            part.requires_grad_(True)


def rate_of(name: str, depth: int, config: AdaptConfig) -> float:
    """The share of the learning rate of a parameter of a student.

    Heads and mask token have the whole; in the backbone the final norm has `backbone_lr`, the last
    block `layer_decay` times that, and so on down to the embedding.
    """
    if not name.startswith("backbone.") or name == _MASK_TOKEN:
        return 1.0
    named = layers_of_backbone()
    below = depth + 1 if re.match(named["stem"], name) else 0
    if block := re.match(named["blocks"], name):
        below = depth - int(block[1])
    return float(config.backbone_lr * config.layer_decay**below)


def build_adapting_optimizer(student: Student, optim: OptimConfig, config: AdaptConfig) -> AdamW:
    """AdamW with one group for each rate, decayed and not, of the backbone and of what is new."""
    depth = student.backbone.depth
    of_images = {id(parameter) for parameter in student.of_backbone()}
    groups: dict[tuple[bool, float, bool], list[nn.Parameter]] = {}
    for name, parameter in student.named_parameters():
        if parameter.requires_grad:
            in_backbone = id(parameter) in of_images
            key = in_backbone, rate_of(name, depth, config), is_decayed(name, parameter)
            groups.setdefault(key, []).append(parameter)
    return AdamW(
        [
            {"params": own, "backbone": in_backbone, "lr_scale": rate, "decayed": decayed}
            for (in_backbone, rate, decayed), own in groups.items()
        ],
        lr=0.0,
        weight_decay=0.0,
        betas=optim.betas,
        fused=True,
    )
