"""Import vision transformers: files, Hugging Face directories, names of timm or of the hub."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path

import timm
import torch
from timm.models.eva import Eva
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.models.architectures import AnyVit, supported
from attmask.models.backbone import Backbone
from attmask.models.importing.architecture import Filled, filled_network
from attmask.models.importing.directory import (
    is_directory_of_weights,
    read_config,
    read_folder,
    read_preprocessor,
)
from attmask.models.importing.hub import HUB, downloaded
from attmask.models.importing.huggingface import huggingface_weights, is_in_transformers_names
from attmask.models.importing.plain import plain_weights
from attmask.models.importing.timm_folder import timm_folder_weights
from attmask.models.importing.weights import EPS, Detection, Weights
from attmask.models.positions import Resize
from attmask.models.pretrained import create_pretrained
from attmask.models.rotary_weights import (
    ROTARY_EPS,
    TEMPERATURE,
    eva_network_for,
    has_rotary_positions,
)
from attmask.models.weights_file import (
    ENDINGS,
    read_weights,
    refuse_not_finite,
    refuse_unusable,
)
from attmask.wording import counted

log = logging.getLogger(__name__)

_DINOV2_PATCH = 14


@dataclass(frozen=True)
class InputFormat:
    """The image size, mean and std a network was trained with; None if unknown."""

    image_size: int
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None


@dataclass(frozen=True, eq=False)
class Imported:
    """A backbone, the input it wants, and what was found where it came from."""

    backbone: Backbone
    pixels: InputFormat
    detection: Detection
    eps: float = EPS
    """Of the layer norms."""
    timm_name: str | None = None
    """The name by which timm builds it again; None if its tensors tell all."""


def import_backbone(
    file_or_name: str | Path,
    *,
    heads: int | None = None,
    positions: Resize | None = None,
    partial: bool = False,
) -> Backbone:
    """The backbone of `import_network` alone."""
    return import_network(file_or_name, heads=heads, positions=positions, partial=partial).backbone


def import_network(
    file_or_name: str | Path,
    *,
    heads: int | None = None,
    positions: Resize | None = None,
    partial: bool = False,
) -> Imported:
    """A ViT from a .safetensors, .pth, .pt or .bin file, a Hugging Face directory, timm or the hub.

    The number of heads cannot be told from a file: it is `heads`, or the entry `heads` in the
    file, or the usual one for this width, which is one for every 64 but in the largest ViTs.
    `positions` says how position embeddings are resized for other image sizes: by default as the
    entry `positions` in the file says, else as the architecture says (`usual_resize`), as
    transformers does for its directories, or for a name of timm as those did who trained it.
    Heads, decoders and mask tokens that lie beside the backbone never change its features. Less
    than the whole backbone is an error unless `partial` is set: what is missing then has initial
    weights. One line of the log says what was found.
    """
    named = str(file_or_name)
    path = Path(file_or_name)
    if named.startswith(HUB):
        folder = downloaded(named)
        if folder is None:
            made = _from_timm(named, positions)
        else:
            made = _from_weights(named, _in_folder(folder), heads, positions, partial)
    elif is_directory_of_weights(path):
        made = _from_weights(named, _in_folder(path), heads, positions, partial)
    elif path.suffix in ENDINGS or path.is_file():
        made = _from_weights(named, _in_file(path, heads, positions), heads, positions, partial)
    else:
        made = _from_timm(named, positions)
    log.info("%s: %s", named, _line(made))
    return made


def input_format(backbone: Backbone) -> InputFormat:
    """The input format of a backbone as timm states it."""
    rows, _ = backbone.vit.patch_embed.grid_size
    known = getattr(backbone.vit, "pretrained_cfg", None) or {}
    mean, std = (tuple(known[name]) if name in known else None for name in ("mean", "std"))
    return InputFormat(int(rows) * backbone.patch_size, mean, std)


def _line(made: Imported) -> str:
    """What was found, for people."""
    backbone = made.backbone
    rows, cols = backbone.vit.patch_embed.grid_size
    registers = backbone.prefix - 1
    is_rotary = backbone.vit.pos_embed is None
    placed = f"{rows} x {cols} positions (resized: {backbone.positions})"
    parts = (
        f"layout of {made.detection.layout}",
        f"width {backbone.width}",
        counted(backbone.depth, "block"),
        counted(backbone.heads[0], "head"),
        f"patches of {backbone.patch_size}",
        "rotary positions" if is_rotary else placed,
        counted(registers, "register") if registers else "no registers",
    )
    return f"{', '.join(parts)}; tensors: {made.detection.counts}"


def _from_timm(name: str, positions: Resize | None) -> Imported:
    is_on_the_hub = name.startswith(HUB)
    if not is_on_the_hub and not timm.is_model(name):
        raise UserError(
            f"{name} is neither a file, nor a Hugging Face directory, nor a network of timm; give "
            f"a {', '.join(ENDINGS)} file or a name such as vit_base_patch16_224.dino"
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
    backbone = Backbone(vit, positions=positions or how).eval()
    detection = Detection(f"timm {name}", len(vit.state_dict()))
    return Imported(backbone, input_format(backbone), detection, timm_name=name)


def _in_folder(folder: Path) -> Weights:
    """The weights of a directory of transformers or timm."""
    config, stored = read_config(folder), read_folder(folder)
    if "architecture" in config and "model_type" not in config:
        return timm_folder_weights(folder, stored, config)
    return huggingface_weights(folder, stored, config, read_preprocessor(folder))


def _in_file(path: Path, heads: int | None, positions: Resize | None) -> Weights:
    """The weights of one file; the config of transformers counts if it lies beside it."""
    stored = read_weights(path)
    if is_in_transformers_names(stored.tensors):
        folder = path.parent
        if not is_directory_of_weights(folder):
            return huggingface_weights(path, stored)
        return huggingface_weights(path, stored, read_config(folder), read_preprocessor(folder))
    is_ours = any("backbone.vit." in name for name in stored.tensors)
    if is_ours and not ((heads or stored.heads) and (positions or stored.positions)):
        raise UserError(
            f"{path} belongs to a run of attmask, whose config.yaml says more; give RUN itself, or "
            "heads= and positions="
        )
    return plain_weights(path, stored)


def _from_weights(
    named: str, weights: Weights, heads: int | None, positions: Resize | None, partial: bool
) -> Imported:
    heads = weights.heads if heads is None else heads
    tensors = dict(weights.tensors)
    refuse_unusable(named, tensors)
    network = _network(named, weights, tensors, heads, partial)
    backbone = Backbone(network.vit)
    left_out = (*weights.left_out, *network.left_out)
    token, used = weights.mask_token, len(backbone.vit.state_dict()) - len(network.missing)
    # MAE's mask token is another one, as wide as its decoder.
    if token is not None and token.numel() == backbone.width:
        refuse_unusable(named, {"the mask token": token})
        refuse_not_finite(named, {"the mask token": token})
        backbone.mask_token.data.copy_(token.reshape(1, -1))
        used += 1
    elif token is not None:
        left_out = ("mask_token", *left_out)
    backbone.positions = positions or weights.positions or usual_resize(backbone.vit)
    detection = Detection(weights.layout, used, left_out, network.missing, weights.beside)
    own = input_format(backbone)
    size = weights.image_size or own.image_size
    if size % backbone.patch_size:
        size = own.image_size
    pixels = InputFormat(size, weights.mean, weights.std)
    eps = getattr(backbone.vit.norm, "eps", EPS)
    return Imported(backbone.eval(), pixels, detection, eps)


def _network(
    named: str, weights: Weights, tensors: dict[str, Tensor], heads: int | None, partial: bool
) -> Filled:
    """The network of the tensors: a plain ViT, or one with rotary positions."""
    if not has_rotary_positions(tensors):
        return filled_network(named, tensors, heads, eps=weights.eps or EPS, partial=partial)
    if partial:
        raise UserError(
            f"{named} has rotary positions, and partial=true is for networks with position "
            "embeddings, which tell their shape; leave it out and give the whole network"
        )
    temperature = weights.rotary.get("rope_theta", TEMPERATURE)
    if temperature != TEMPERATURE:
        raise UserError(
            f"{named} has rotary positions of rope_theta={temperature}; wanted {TEMPERATURE:g}, as "
            "every DINOv3 has"
        )
    return Filled(eva_network_for(named, tensors, heads, eps=weights.eps or ROTARY_EPS))


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
