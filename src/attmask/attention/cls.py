"""The `[CLS]` attention of any supported vision transformer, read without changing it.

    attention = cls_attention(model, images)                # B x N, after one forward pass

    with watch_cls_attention(teacher) as watched:           # of a pass that is made anyway
        output = teacher(images)
    mask = masker(watched.mean, step=step)

Layers are counted from 1, as `masking.layer` counts them; -1 is the last. In train mode, dropout
and drop path act on the tokens as in any forward pass, and no gradient flows through the result.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attmask.attention import huggingface_vits, timm_vits
from attmask.attention.network import Network
from attmask.errors import UserError
from attmask.models.backbone import Backbone


class WatchedAttention:
    """The `[CLS]` attention of the last forward pass."""

    def __init__(self) -> None:
        self._heads: Tensor | None = None

    @property
    def heads(self) -> Float[Tensor, "B H N"]:
        """The attention of each head."""
        if self._heads is None:
            raise UserError(
                "the network made no forward pass that could be watched; call it inside of the "
                "with block, and give the network itself, not one that torch.compile made"
            )
        return self._heads

    @property
    def mean(self) -> Float[Tensor, "B N"]:
        """The mean over the heads, which masks are made from."""
        return self.heads.mean(dim=1)

    def keep(self, heads: Float[Tensor, "B H N"]) -> None:
        """Keep the attention of a forward pass."""
        self._heads = heads


def cls_attention(
    model: nn.Module,
    images: Float[Tensor, "B C height width"],
    layer: int = -1,
    **options: Any,
) -> Float[Tensor, "B N"]:
    """How much `[CLS]` attends to each patch, as the mean over the heads of a layer.

    `options` go to the model's forward, e.g. `interpolate_pos_encoding=True`.
    """
    return cls_attention_heads(model, images, layer, **options).mean(dim=1)


def cls_attention_heads(
    model: nn.Module,
    images: Float[Tensor, "B C height width"],
    layer: int = -1,
    **options: Any,
) -> Float[Tensor, "B H N"]:
    """How much `[CLS]` attends to each patch in each head of a layer."""
    model = getattr(model, "_orig_mod", model)  # compiled code does not see new hooks
    with torch.no_grad():
        if isinstance(model, Backbone):
            return model.attention_heads(images, _index(layer, model.depth) + 1)
        with watch_cls_attention(model, layer) as watched:
            model(images, **options)
    return watched.heads


@contextmanager
def watch_cls_attention(model: nn.Module, layer: int = -1) -> Iterator[WatchedAttention]:
    """Watch the `[CLS]` attention of a layer in the forward passes inside of the with block."""
    network = find_network(model)
    attention = network.attentions[_index(layer, len(network.attentions))]
    watched = WatchedAttention()

    def watch(module: nn.Module, given: Sequence[Any], named: Mapping[str, Any]) -> None:
        watched.keep(network.heads(module, given, named))

    hook = attention.register_forward_pre_hook(watch, with_kwargs=True)
    try:
        yield watched
    finally:
        hook.remove()


def find_network(model: nn.Module) -> Network:
    """The vision transformer that a module is, or the only one inside of it."""
    if isinstance(model, Backbone):
        raise UserError("a Backbone of attmask gives its attention itself: model(images).attention")
    found: list[Network] = []
    inside: set[nn.Module] = set()
    for module in model.modules():
        if module in inside:
            continue
        network = timm_vits.read_timm(module) or huggingface_vits.read_huggingface(module)
        if network is not None:
            found.append(network)
            inside.update(module.modules())
    if len(found) == 1:
        return found[0]
    name = type(model).__name__
    if found:
        raise UserError(f"{name} has {len(found)} vision transformers; give the one to read")
    of_timm = ", ".join(kind.__name__ for kind in timm_vits.KINDS)
    raise UserError(
        f"[CLS] attention of {name} cannot be read; give a network of timm ({of_timm}) or of "
        f"transformers ({', '.join(huggingface_vits.KINDS)})"
    )


def _index(layer: int, depth: int) -> int:
    """The index of a layer that is counted from 1, or from the end."""
    if layer == 0 or abs(layer) > depth:
        raise UserError(f"layer {layer}: wanted 1 to {depth}, or -1 (the last) to -{depth}")
    return layer - 1 if layer > 0 else depth + layer
