"""Import plain vision transformers from a file of weights or from timm."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import timm
import torch
from timm.models.eva import Eva
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.models.architectures import AnyVit, supported
from attmask.models.backbone import Backbone
from attmask.models.positions import Resize
from attmask.models.pretrained import create_pretrained
from attmask.models.weights_file import (
    ENDINGS,
    WANTED,
    listed,
    name_of,
    read_weights,
    refuse_not_finite,
    refuse_unusable,
)

_LEFT_OUT = re.compile(r"(head|dino_head|ibot_head)\.|(masked_embed|mask_token)$|decoder_")
_ESSENTIAL = (
    "cls_token",
    "pos_embed",
    "patch_embed.proj.weight",
    "blocks.0.attn.qkv.weight",
    "blocks.0.mlp.fc1.weight",
)
_HEAD_WIDTH = 64  # of nearly all plain ViTs
_OTHER_HEADS = {1280: 16, 1408: 16, 1664: 16}  # ViT-H, -g and -G: 16 wider heads
_DINOV2_PATCH = 14


@dataclass(frozen=True)
class InputFormat:
    """The image size, mean and std a network was trained with; None if unknown."""

    image_size: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None


def import_backbone(
    file_or_name: str | Path, *, heads: int | None = None, positions: Resize | None = None
) -> Backbone:
    """A plain ViT from a .safetensors, .pth, .pt or .bin file, or timm's pretrained one.

    The number of heads cannot be told from a file: it is `heads`, or the entry `heads` in the
    file, or the usual one for this width, which is one for every 64 but in the largest ViTs.
    `positions` says how position embeddings are resized for other image sizes: by default as the
    entry `positions` in the file says, else as the architecture says (`usual_resize`), or for a
    name of timm as those did who trained it. Heads, decoders and mask tokens that lie beside the
    backbone never change its features.
    """
    path = Path(file_or_name)
    if path.suffix in ENDINGS or path.is_file():
        return _from_file(path, heads, positions)
    return _from_timm(str(file_or_name), positions)


def input_format(backbone: Backbone) -> InputFormat:
    """The input format of an imported backbone."""
    rows, _ = backbone.vit.patch_embed.grid_size
    known = getattr(backbone.vit, "pretrained_cfg", None) or {}
    mean, std = (tuple(known[name]) if name in known else None for name in ("mean", "std"))
    return InputFormat(int(rows) * backbone.patch_size, mean, std)


def _from_timm(name: str, positions: Resize | None) -> Backbone:
    is_on_the_hub = name.startswith(("hf_hub:", "hf-hub:"))
    if not is_on_the_hub and not timm.is_model(name):
        raise UserError(
            f"{name} is neither a file nor a network of timm; give a {', '.join(ENDINGS)} "
            "file or a name such as vit_base_patch16_224.dino"
        )
    try:
        if not is_on_the_hub:
            with torch.device("meta"):  # what cannot be used is refused before it is fetched
                Backbone(supported(timm.create_model(name, num_classes=0)))
        with torch.random.fork_rng(devices=[]):  # timm draws weights before it has them
            instead = "give the file of its weights"
            vit = supported(create_pretrained(name, instead=instead, num_classes=0))
    except UserError:
        raise
    except (RuntimeError, ValueError) as fault:  # no such weights, or not these
        why = next(iter(str(fault).splitlines()), "no weights")
        raise UserError(f"timm cannot build {name} ({why}); use another name or a file") from fault
    by_reference = re.search(r"\.dino$|_dinov2\.", name) and "_reg" not in name
    how: Resize = "reference" if by_reference else "size"
    return Backbone(vit, positions=positions or how).eval()


def _from_file(path: Path, heads: int | None, positions: Resize | None) -> Backbone:
    stored = read_weights(path)
    heads = stored.heads if heads is None else heads
    positions = positions or stored.positions
    is_ours = any("backbone.vit." in name for name in stored.tensors)
    if is_ours and (heads is None or positions is None):
        raise UserError(
            f"{path} belongs to a run of attmask, whose config.yaml says more; give RUN itself, or "
            "heads= and positions="
        )
    tensors = _in_timms_names(path, stored.tensors)
    mask_token = tensors.get("masked_embed", tensors.get("mask_token"))
    used = {name: tensor for name, tensor in tensors.items() if not _LEFT_OUT.match(name)}
    refuse_unusable(path, used)
    backbone = Backbone(network_for(path, used, heads))
    # MAE's mask token is another one, as wide as its decoder.
    if mask_token is not None and mask_token.numel() == backbone.width:
        refuse_unusable(path, {"the mask token": mask_token})
        refuse_not_finite(path, {"the mask token": mask_token})
        backbone.mask_token.data.copy_(mask_token.reshape(1, -1))
    backbone.positions = positions or usual_resize(backbone.vit)
    return backbone.eval()


def usual_resize(vit: AnyVit) -> Resize:
    """How position embeddings of this architecture are resized by default.

    DINO, iBOT and AttMask train a plain ViT: `[CLS]` has a position, queries have biases, there is
    neither layer scale nor a register. They resize by (size + 0.1) / old size in every training
    step, so their weights expect it ("reference"). DINOv2 without registers does the same; it is
    the network with layer scale and patches of 14 pixels. All others are resized by size. A
    supervised ViT, DeiT and MAE are built exactly like DINO's: nothing in their weights tells them
    apart, and they count as DINO's unless the user or the file says otherwise.
    """
    if isinstance(vit, Eva):
        return "size"  # its positions are rotary: there is nothing to resize
    block = vit.blocks[0]
    has_layer_scale = isinstance(block, Block) and not isinstance(block.ls1, nn.Identity)
    has_bias = isinstance(block, Block) and block.attn.get_submodule("qkv").bias is not None
    if vit.no_embed_class or vit.num_prefix_tokens > 1 or not has_bias:
        return "size"
    is_dinov2 = vit.patch_embed.patch_size[0] == _DINOV2_PATCH
    return "reference" if is_dinov2 or not has_layer_scale else "size"


def _in_timms_names(path: Path, stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without the prefixes of training wrappers."""
    plain_wrapper = re.compile(r"^(module\.|_orig_mod\.)+")
    has_teacher = any(plain_wrapper.sub("", name).startswith("teacher.") for name in stored)
    named: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if has_teacher and not plain_wrapper.sub("", name).startswith("teacher."):
            continue
        plain = re.sub(r"^(module\.|_orig_mod\.|teacher\.|backbone\.|vit\.)+", "", name)
        # DINOv2 trains its blocks in groups: blocks.GROUP.BLOCK, the blocks counted throughout.
        plain = re.sub(r"^blocks\.\d+\.(\d+\.)", r"blocks.\1", plain)
        if plain in named:
            raise UserError(
                f"{path} holds {name_of(plain)} twice, once as {name_of(name)}; save one network "
                "alone"
            )
        named[plain] = tensor
    return named


def network_for(
    path: Path | str, tensors: dict[str, Tensor], heads: int | None
) -> VisionTransformer:
    """The network whose parameters have these shapes, with these values."""
    lacking = [name for name in _ESSENTIAL if name not in tensors]
    if lacking:
        raise UserError(f"{path} has no {lacking[0]}: found {listed(tensors)}; {WANTED}")
    shapes = {name: tuple(tensors[name].shape) for name in _ESSENTIAL}
    patch_shape = shapes["patch_embed.proj.weight"]
    is_square = patch_shape[2:3] == patch_shape[3:4]
    dimensions = [len(shape) for shape in shapes.values()]
    if dimensions != [3, 3, 4, 2, 2] or not is_square or any(0 in s for s in shapes.values()):
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UserError(f"{path} has shapes that no plain ViT has: {told}; {WANTED}")
    if "register_tokens" in tensors:
        _fold_registers_(path, tensors)
    width, channels, patch, _ = patch_shape
    hidden = shapes["blocks.0.mlp.fc1.weight"][0]
    registers = _registers(path, tensors)
    side, is_cls_placed = _grid(path, tensors["pos_embed"].shape[1], 1 + registers)
    depth = _depth(path, tensors)
    with torch.device("meta"):  # no weights are drawn: all of them come from the file
        vit = VisionTransformer(
            img_size=side * patch,
            patch_size=patch,
            in_chans=channels,
            num_classes=0,
            embed_dim=width,
            depth=depth,
            num_heads=_heads(path, width, heads),
            mlp_ratio=(hidden + 0.5) / width,  # timm rounds the product down
            qkv_bias="blocks.0.attn.qkv.bias" in tensors,
            init_values=1.0 if "blocks.0.ls1.gamma" in tensors else None,
            no_embed_class=not is_cls_placed,
            reg_tokens=registers,
            weight_init="skip",
        )
    _fill(path, vit, tensors)
    return vit


def _fill(path: Path | str, vit: VisionTransformer, tensors: Mapping[str, Tensor]) -> None:
    """Load the tensors; a missing or unexpected one is an error."""
    wanted = {name: tuple(tensor.shape) for name, tensor in vit.state_dict().items()}
    unknown = [name for name in tensors if name not in wanted]
    missing = [name for name in wanted if name not in tensors]
    wrong = [n for n in wanted if n in tensors and wanted[n] != tuple(tensors[n].shape)]
    for names, what in (
        (unknown, "weights that a plain ViT does not have"),
        (missing, "a plain ViT without all its weights, of which it lacks"),
        (wrong, "weights of a shape that does not fit the others"),
    ):
        if names:
            raise UserError(f"{path} holds {what}: {listed(names)}; {WANTED}")
    full = {name: tensor.float() for name, tensor in tensors.items()}
    refuse_not_finite(path, full)
    vit.load_state_dict(full, assign=True)


def _depth(path: Path | str, tensors: Mapping[str, Tensor]) -> int:
    """The number of blocks, each of which must be there: a number in a name may be any."""
    found = {match[1] for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))}
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
        raise UserError(f"{path} has tokens of width {width}, not a multiple of {found} heads")
    return found
