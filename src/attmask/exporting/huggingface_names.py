"""The tensors of a ViT under the names of transformers' ViT and DINOv2 files."""

from collections.abc import Iterator

import torch
from timm.layers import Attention
from torch import Tensor, nn

from attmask.exporting.subject import Subject
from attmask.mask import Grid
from attmask.models.blocks import Block

_VIT = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}
_DINOV2 = {
    "norm1": "norm1",
    "norm2": "norm2",
    "attn.proj": "attention.output.dense",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def embeddings(
    subject: Subject, grid: Grid, *, has_registers: bool
) -> Iterator[tuple[str, Tensor]]:
    """The tensors before the blocks: patches, tokens and positions.

    In these files `[CLS]` has a position and registers have none; theirs are added to them.
    """
    vit, width = subject.vit, subject.backbone.width
    convolution = vit.patch_embed.proj
    bias = torch.zeros(width) if convolution.bias is None else convolution.bias
    yield "patch_embeddings.projection.weight", convolution.weight
    yield "patch_embeddings.projection.bias", bias
    prefix = torch.zeros(1, subject.backbone.prefix, width)
    if vit.pos_embed is not None and not vit.no_embed_class:
        prefix = vit.pos_embed[:, : subject.backbone.prefix]
    assert vit.cls_token is not None
    yield "cls_token", vit.cls_token
    where = [prefix[:, :1], subject.patch_positions(grid)]
    yield "position_embeddings", torch.cat(where, dim=1)
    if has_registers:
        assert vit.reg_token is not None
        yield "register_tokens", vit.reg_token + prefix[:, 1:]


def block_tensors(block: Block, *, as_dinov2: bool) -> Iterator[tuple[str, Tensor]]:
    """The tensors of one block, with queries, keys and values apart."""
    attn = block.attn
    assert isinstance(attn, Attention)
    for kind in ("weight", "bias"):
        joint = getattr(attn.qkv, kind)
        if joint is not None:
            for name, part in zip(("query", "key", "value"), joint.chunk(3), strict=True):
                yield f"attention.attention.{name}.{kind}", part
    for ours, theirs in (_DINOV2 if as_dinov2 else _VIT).items():
        module = block.get_submodule(ours)
        yield f"{theirs}.weight", module.get_parameter("weight")
        yield f"{theirs}.bias", module.get_parameter("bias")
    if as_dinov2:
        for number in (1, 2):
            scale = block.get_submodule(f"ls{number}")
            ones = torch.ones_like(attn.proj.weight[:, 0])  # no layer scale is one of ones
            gamma = ones if isinstance(scale, nn.Identity) else scale.get_parameter("gamma")
            yield f"layer_scale{number}.lambda1", gamma
