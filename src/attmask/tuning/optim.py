"""AdamW for a backbone with a head: the learning rate falls from block to block."""

import re

from timm.optim import param_groups_layer_decay
from torch import nn
from torch.optim import AdamW

from attmask.errors import UserError
from attmask.tuning.config import TunedOptimConfig


def build_optimizer(network: nn.Module, config: TunedOptimConfig) -> AdamW:
    """AdamW with timm's groups of layer decay; biases and norms are not decayed.

    The network has a `backbone`, and a `group_matcher` that names its layers.
    """
    known = dict(network.named_parameters())
    ours = tuple(f"backbone.vit.{re.sub(r'^backbone[.]vit[.]', '', n)}" for n in config.no_decay)
    for name, own in zip(config.no_decay, ours, strict=True):
        if own not in known:
            raise UserError(
                f"optim.no_decay: the network has no tensor {name}; use e.g. pos_embed or cls_token"
            )
    groups = param_groups_layer_decay(
        network,
        weight_decay=1.0,  # the mark of those that are decayed: rates are set at each step
        layer_decay=config.layer_decay,
        no_weight_decay_list=ours,
    )
    groups = [{**group, "decayed": group["weight_decay"] > 0} for group in groups]
    return AdamW(groups, lr=0.0, weight_decay=0.0, betas=config.betas, fused=True)
