"""The network whose parameters have the shapes of some tensors, filled with them."""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial as bound
from pathlib import Path
from typing import NamedTuple

import torch
from timm.layers import LayerNorm
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.models.architectures import AnyVit
from attmask.models.importing.weights import EPS
from attmask.models.weights_file import WANTED, listed, refuse_not_finite

_ESSENTIAL = (
    "cls_token",
    "pos_embed",
    "patch_embed.proj.weight",
    "blocks.0.attn.qkv.weight",
    "blocks.0.mlp.fc1.weight",
)
_DIMENSIONS = {"cls_token": 3, "pos_embed": 3, "patch_embed.proj.weight": 4}
_TOLD_BY = ("pos_embed", "patch_embed.proj.weight")
"""What a part of a network must have, because nothing else tells its image and patch size."""
_HEAD_WIDTH = 64  # of nearly all plain ViTs
_OTHER_HEADS = {1280: 16, 1408: 16, 1664: 16}  # ViT-H, -g and -G: 16 wider heads
_MOST_BLOCKS = 200


class Filled(NamedTuple):
    """A network, the names of its parameters that had no tensor, and of tensors without a place."""

    vit: AnyVit
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def network_for(
    path: Path | str, tensors: dict[str, Tensor], heads: int | None, *, eps: float = EPS
) -> AnyVit:
    """The network whose parameters have these shapes, with these values."""
    return filled_network(path, tensors, heads, eps=eps).vit


def filled_network(
    path: Path | str,
    tensors: dict[str, Tensor],
    heads: int | None,
    *,
    eps: float = EPS,
    partial: bool = False,
) -> Filled:
    """The network of these tensors; all of it, unless a part of it is enough.

    Of a `partial` one, what is missing has initial weights, and what has no place is left out.
    """
    wanted = _TOLD_BY if partial else _ESSENTIAL
    lacking = [name for name in wanted if name not in tensors]
    if lacking:
        raise UserError(f"{path} has no {lacking[0]}: found {listed(tensors)}; {WANTED}")
    shapes = {name: tuple(tensors[name].shape) for name in wanted}
    patch_shape = shapes["patch_embed.proj.weight"]
    is_square = patch_shape[2:3] == patch_shape[3:4]
    is_plain = all(len(shape) == _DIMENSIONS.get(name, 2) for name, shape in shapes.items())
    if not is_plain or not is_square or any(0 in s for s in shapes.values()):
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UserError(f"{path} has shapes that no plain ViT has: {told}; {WANTED}")
    if "register_tokens" in tensors:
        _fold_registers_(path, tensors)
    width, channels, patch, _ = patch_shape
    registers = _registers(path, tensors)
    side, is_cls_placed = _grid(path, tensors["pos_embed"].shape[1], 1 + registers)
    hidden = next(
        (tensor.shape[0] for name, tensor in tensors.items() if name.endswith(".mlp.fc1.weight")),
        4 * width,
    )
    has = "".join(tensors)
    # No weights are drawn where all of them come from the file.
    with _drawing_alike() if partial else torch.device("meta"):
        vit = VisionTransformer(
            img_size=side * patch,
            patch_size=patch,
            in_chans=channels,
            num_classes=0,
            embed_dim=width,
            depth=_depth(path, tensors, partial=partial),
            num_heads=_heads(path, width, heads),
            mlp_ratio=(hidden + 0.5) / width,  # timm rounds the product down
            qkv_bias=".attn.qkv.bias" in has or ".attn.qkv." not in has,
            init_values=1.0 if ".ls1.gamma" in has else None,
            no_embed_class=not is_cls_placed,
            reg_tokens=registers,
            norm_layer=bound(LayerNorm, eps=eps),
            weight_init="" if partial else "skip",
        )
        if partial and vit.cls_token is not None:
            nn.init.trunc_normal_(vit.cls_token, std=0.02)  # as the reference; timm: 1e-6
    return _fill(path, vit, tensors, partial=partial)


@contextmanager
def _drawing_alike() -> Iterator[None]:
    """Draw the same numbers every time, and leave the generator of the process alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def _fill(
    path: Path | str, vit: VisionTransformer, tensors: Mapping[str, Tensor], *, partial: bool
) -> Filled:
    """Load the tensors; a missing or unexpected one is an error, unless a part is enough."""
    wanted = {name: tuple(tensor.shape) for name, tensor in vit.state_dict().items()}
    unknown = [name for name in tensors if name not in wanted]
    missing = [name for name in wanted if name not in tensors]
    wrong = [n for n in wanted if n in tensors and wanted[n] != tuple(tensors[n].shape)]
    for names, what in (
        ([] if partial else unknown, "weights that a plain ViT does not have"),
        ([] if partial else missing, "a plain ViT without all its weights, of which it lacks"),
        (wrong, "weights of a shape that does not fit the others"),
    ):
        if names:
            advice = WANTED if names is not missing else f"{WANTED}, or add @partial=true"
            raise UserError(f"{path} holds {what}: {listed(names)}; {advice}")
    full = {name: tensors[name].float() for name in wanted if name in tensors}
    refuse_not_finite(path, full)
    vit.load_state_dict(full, assign=True, strict=not partial)
    return Filled(vit, tuple(missing), tuple(unknown))


def _depth(path: Path | str, tensors: Mapping[str, Tensor], *, partial: bool) -> int:
    """The number of blocks, each of which must be there: a number in a name may be any."""
    found = {match[1] for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))}
    if partial and found:
        last = max(int(number[:9]) for number in found)
        if last >= _MOST_BLOCKS:
            raise UserError(f"{path} has a block {last}; wanted at most {_MOST_BLOCKS} blocks")
        return last + 1
    lacking = [number for number in range(len(found)) if str(number) not in found]
    if lacking:
        raise UserError(
            f"{path} has {len(found)} blocks, but none with number {lacking[0]}; {WANTED}"
        )
    return len(found)


def _registers(path: Path | str, tensors: Mapping[str, Tensor]) -> int:
    shape = tuple(tensors["reg_token"].shape) if "reg_token" in tensors else (1, 0, 0)
    if len(shape) != 3:
        raise UserError(f"{path} has register tokens of shape {shape}; wanted (1, number, width)")
    return shape[1]


def _fold_registers_(path: Path | str, tensors: dict[str, Tensor]) -> None:
    """DINOv2 places `[CLS]` but no register; timm has such networks place neither."""
    if "cls_token" not in tensors:
        raise UserError(f"{path} has registers, but no cls_token; {WANTED}")
    positions, cls = tensors["pos_embed"], tensors["cls_token"]
    if positions.shape[-1] != cls.shape[-1]:
        raise UserError(
            f"{path} has cls_token of width {cls.shape[-1]} and pos_embed of width "
            f"{positions.shape[-1]}; {WANTED}"
        )
    tensors["reg_token"] = tensors.pop("register_tokens")
    tensors["cls_token"] = cls + positions[:, :1]
    tensors["pos_embed"] = positions[:, 1:]


def _grid(path: Path | str, positions: int, prefix: int) -> tuple[int, bool]:
    """The side of the grid of patches, and whether `[CLS]` and registers have positions too."""
    for patches, is_cls_placed in ((positions - prefix, True), (positions, False)):
        side = math.isqrt(max(0, patches))
        if side > 0 and side * side == patches:
            return side, is_cls_placed
    raise UserError(
        f"{path} has {positions} positions, which is no square grid with {prefix} tokens before "
        "it or without; networks for images that are not square cannot be imported"
    )


def _heads(path: Path | str, width: int, heads: int | None) -> int:
    if heads is None and width % _HEAD_WIDTH:
        raise UserError(
            f"{path} has tokens of width {width}, which is not a multiple of {_HEAD_WIDTH}: the "
            "number of heads cannot be told; give heads=, or store it as the entry heads"
        )
    found = _OTHER_HEADS.get(width, width // _HEAD_WIDTH) if heads is None else heads
    if found < 1 or width % found:
        raise UserError(
            f"{path} has tokens of width {width}, not a multiple of {found} heads; give the number "
            "that the network was trained with as @heads=N"
        )
    return found
