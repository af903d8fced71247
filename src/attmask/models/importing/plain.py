"""Files in timm's names, as DINO, iBOT, AttMask, DINOv2, MAE, DeiT and timm write them."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path

from torch import Tensor

from attmask.errors import UserError
from attmask.models.dinov3_names import dinov3_in_timms_names, is_dinov3
from attmask.models.importing.weights import EPS, ROTARY_EPS, Weights
from attmask.models.rotary_weights import has_rotary_positions
from attmask.models.weights_file import StoredWeights, name_of

_WRAPPER = re.compile(r"^(module\.|_orig_mod\.)+")
_PREFIX = re.compile(r"^(module\.|_orig_mod\.|teacher\.|backbone\.|vit\.)+")
_LEFT_OUT = re.compile(
    r"(head|dino_head|ibot_head|pre_logits)\.|(masked_embed|mask_token)$|decoder_"
)
_MASK_TOKENS = ("masked_embed", "mask_token")


def plain_weights(path: Path, stored: StoredWeights) -> Weights:
    """The backbone in a file; heads, decoders and mask tokens beside it are left out."""
    named, others = _in_timms_names(path, stored.tensors)
    if is_dinov3(named):
        return _dinov3(path, named, others, stored)
    if "dist_token" in named:
        raise UserError(
            f"{path} is a distilled DeiT, whose second token a plain ViT does not have; use the "
            "DeiT without distillation"
        )
    mask_token = next((named[name] for name in _MASK_TOKENS if name in named), None)
    left_out = [name for name in named if _LEFT_OUT.match(name)]
    return Weights(
        layout_of(named),
        {name: tensor for name, tensor in named.items() if name not in set(left_out)},
        mask_token,
        (*(name for name in left_out if name not in _MASK_TOKENS), *others),
        stored.beside,
        stored.heads,
        stored.positions,
        ROTARY_EPS if has_rotary_positions(named) else EPS,
    )


def _dinov3(
    path: Path, named: Mapping[str, Tensor], others: Collection[str], stored: StoredWeights
) -> Weights:
    """The backbone in a checkpoint of DINOv3's own."""
    found = dinov3_in_timms_names(path, named)
    return Weights(
        "DINOv3",
        found.tensors,
        found.mask_token,
        (*found.left_out, *others),
        stored.beside,
        stored.heads or found.heads,
        stored.positions,
        ROTARY_EPS,
    )


def layout_of(names: Collection[str]) -> str:
    """Whose file it is, as far as names tell; nothing but the words of a message depends on it."""
    if "register_tokens" in names:
        return "DINOv2 with registers"
    if any(name.startswith("decoder_") for name in names):
        return "MAE"
    if "mask_token" in names and "blocks.0.ls1.gamma" in names:
        return "DINOv2"
    if "masked_embed" in names:
        return "AttMask or iBOT"
    if any(name.startswith(("head.last_layer.", "head.mlp.")) for name in names):
        return "DINO"
    return "timm"


def _in_timms_names(
    path: Path, stored: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors without the prefixes of training wrappers, and the names of other networks."""
    has_teacher = any(_WRAPPER.sub("", name).startswith("teacher.") for name in stored)
    named: dict[str, Tensor] = {}
    others: list[str] = []
    for name, tensor in stored.items():
        if has_teacher and not _WRAPPER.sub("", name).startswith("teacher."):
            others.append(name)
            continue
        # DINOv2 trains its blocks in groups: blocks.GROUP.BLOCK, the blocks counted throughout.
        plain = re.sub(r"^blocks\.\d+\.(\d+\.)", r"blocks.\1", _PREFIX.sub("", name))
        if plain in named:
            raise UserError(
                f"{path} holds {name_of(plain)} twice, once as {name_of(name)}; save one network "
                "alone"
            )
        named[plain] = tensor
    return named, others
