"""The network with rotary positions whose parameters have the shapes of some tensors."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from timm.layers import LayerNorm
from timm.models.eva import Eva
from torch import Tensor

from attmask.errors import UserError
from attmask.models.weights_file import listed, refuse_not_finite

WANTED = (
    "wanted a ViT with the rotary positions of DINOv3 in timm's names: cls_token, reg_token, "
    "patch_embed.*, blocks.*, norm.*"
)
TEMPERATURE = 100.0  # of the angles of every DINOv3; no tensor tells it
_DIMENSIONS = {"cls_token": 3, "patch_embed.proj.weight": 4, "blocks.0.attn.proj.weight": 2}
_MLPS = ("blocks.0.mlp.fc1.weight", "blocks.0.mlp.fc1_g.weight")  # plain, SwiGLU
_MARKS = {"rope.periods", "storage_tokens", "blocks.0.gamma_1", "blocks.0.attn.q_bias"}
_HEAD_WIDTH = 64
_OTHER_HEADS = {4096: 32}  # DINOv3 7B
_GRID = 14  # of 224 pixels in patches of 16; rotary positions fit any other as well


def has_rotary_positions(tensors: Mapping[str, Tensor]) -> bool:
    """Whether the names are those of a network with rotary positions alone, as DINOv3's."""
    return "pos_embed" not in tensors and bool(_MARKS & set(tensors))


def eva_network_for(
    path: Path | str, tensors: Mapping[str, Tensor], heads: int | None, *, eps: float = 1e-5
) -> Eva:
    """The network whose parameters have these shapes, with these values; names are timm's.

    Its number of heads is `heads`, or the usual one for its width: one for every 64.
    """
    mlp = next((name for name in _MLPS if name in tensors), _MLPS[0])
    dimensions = {**_DIMENSIONS, mlp: 2}
    lacking = [name for name in dimensions if name not in tensors]
    if lacking:
        raise UserError(f"{path} has no {lacking[0]}: found {listed(tensors)}; {WANTED}")
    if "pos_embed" in tensors:
        raise UserError(
            f"{path} has position embeddings beside rotary positions, which is not supported; "
            f"{WANTED}"
        )
    shapes = {name: tuple(tensors[name].shape) for name in dimensions}
    registers = tuple(tensors["reg_token"].shape) if "reg_token" in tensors else (1, 0, 0)
    width, channels, patch, other_side = (*shapes["patch_embed.proj.weight"], 0, 0, 0, 0)[:4]
    fits = [len(shape) for shape in shapes.values()] == list(dimensions.values())
    is_empty = any(0 in shape for shape in shapes.values())
    if not fits or is_empty or patch != other_side or len(registers) != 3:
        shapes |= {"reg_token": registers} if "reg_token" in tensors else {}
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UserError(f"{path} has shapes that no such ViT has: {told}; {WANTED}")
    with torch.device("meta"):  # no weights are drawn: all of them come from the file
        vit = Eva(
            img_size=_GRID * patch,
            patch_size=patch,
            in_chans=channels,
            num_classes=0,
            global_pool="token",
            embed_dim=width,
            depth=_depth(path, tensors),
            num_heads=_heads(path, width, heads),
            qkv_bias=any(name.endswith(("q_bias", "q_proj.bias")) for name in tensors),
            qkv_fused="blocks.0.attn.q_proj.weight" not in tensors,
            mlp_ratio=(shapes[mlp][0] + 0.5) / width,  # timm rounds the product down
            swiglu_mlp=mlp != _MLPS[0],
            swiglu_align_to=1 if mlp != _MLPS[0] else 0,
            init_values=1.0 if "blocks.0.gamma_1" in tensors else None,
            num_reg_tokens=registers[1],
            use_abs_pos_emb=False,
            use_rot_pos_emb=True,
            rope_type="dinov3",
            rope_temperature=TEMPERATURE,
            rope_rotate_half=True,
            dynamic_img_size=True,
            use_fc_norm=False,
            norm_layer=partial(LayerNorm, eps=eps),
        )
    _fill(path, vit, tensors)
    return vit


def _fill(path: Path | str, vit: Eva, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors; a missing or unexpected one is an error."""
    wanted = {name: tuple(tensor.shape) for name, tensor in vit.state_dict().items()}
    unknown = [name for name in tensors if name not in wanted]
    missing = [name for name in wanted if name not in tensors]
    wrong = [n for n in wanted if n in tensors and wanted[n] != tuple(tensors[n].shape)]
    for names, what in (
        (unknown, "weights that a ViT with rotary positions does not have"),
        (missing, "a ViT with rotary positions without all its weights, of which it lacks"),
        (wrong, "weights of a shape that does not fit the others"),
    ):
        if names:
            raise UserError(f"{path} holds {what}: {listed(names)}; {WANTED}")
    full = {name: tensor.float() for name, tensor in tensors.items()}
    refuse_not_finite(path, full)
    vit.load_state_dict(full, assign=True)


def _depth(path: Path | str, tensors: Mapping[str, Tensor]) -> int:
    found = {match[1] for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))}
    lacking = [number for number in range(len(found)) if str(number) not in found]
    if lacking:
        raise UserError(
            f"{path} has {len(found)} blocks, but none with number {lacking[0]}; {WANTED}"
        )
    return len(found)


def _heads(path: Path | str, width: int, heads: int | None) -> int:
    if heads is None and width % _HEAD_WIDTH:
        raise UserError(
            f"{path} has tokens of width {width}, which is not a multiple of {_HEAD_WIDTH}: the "
            "number of heads cannot be told; give heads=, or store it as the entry heads"
        )
    found = _OTHER_HEADS.get(width, width // _HEAD_WIDTH) if heads is None else heads
    if found < 1 or width % (4 * found):
        raise UserError(
            f"{path} has tokens of width {width}, which cannot be {found} heads with rotary "
            f"positions; wanted a multiple of {4 * max(found, 1)}"
        )
    return found
