"""Networks of transformers: which kind a folder or file holds, and what its config says."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from attmask.errors import UserError
from attmask.models.importing.hf_dinov2 import dinov2_names
from attmask.models.importing.hf_dinov3 import dinov3_names
from attmask.models.importing.hf_vit import vit_names
from attmask.models.importing.preprocessing import preprocessing
from attmask.models.importing.renaming import Renamed
from attmask.models.importing.weights import Weights
from attmask.models.positions import Resize
from attmask.models.weights_file import StoredWeights, name_of


class _Kind(NamedTuple):
    """A network of transformers: its names, and what holds where no config says otherwise."""

    title: str
    names: Callable[[Path, Mapping[str, Tensor]], Renamed]
    positions: Resize | None
    eps: float


# How each class of transformers resizes its positions: bicubic to the size, with antialiasing in
# the network with registers alone.
_KINDS = {
    "vit": _Kind("ViT", vit_names, "no-antialias", 1e-12),
    "vit_mae": _Kind("ViTMAE", vit_names, "no-antialias", 1e-12),
    "dinov2": _Kind("Dinov2", dinov2_names, "no-antialias", 1e-6),
    "dinov2_with_registers": _Kind("Dinov2WithRegisters", dinov2_names, "size", 1e-6),
    "dinov3_vit": _Kind("DINOv3ViT", dinov3_names, None, 1e-5),
}
_ROTARY = ("rope_theta", "pos_embed_rescale", "use_gated_mlp", "image_size")


def is_in_transformers_names(names: Mapping[str, Tensor]) -> bool:
    """Whether the tensors have the names of a vision transformer of transformers."""
    return any("embeddings.patch_embeddings." in name for name in names)


def huggingface_weights(
    path: Path,
    stored: StoredWeights,
    config: Mapping[str, Any] | None = None,
    preprocessor: Mapping[str, Any] | None = None,
) -> Weights:
    """The backbone of a network of transformers; without a config its names tell the kind."""
    config = config or {}
    name = config.get("model_type", None if config else _told_by_names(stored.tensors))
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise UserError(
            f"{path} is a network of transformers of the kind {name_of(str(name))}, which cannot "
            f"be imported; wanted {', '.join(_KINDS)}"
        )
    _require_plain(path, config)
    found = kind.names(path, stored.tensors)
    mask_token = found.tensors.pop("mask_token", None)
    channels = config.get("num_channels", 3)
    shown = preprocessing(path, preprocessor or {}, channels=_count(channels) or 3)
    architecture = config.get("architectures")
    is_named = isinstance(architecture, list) and architecture and isinstance(architecture[0], str)
    title = name_of(architecture[0]) if is_named and architecture else f"{kind.title}Model"
    return Weights(
        f"Hugging Face {title}",
        found.tensors,
        mask_token,
        found.left_out,
        stored.beside,
        _count(config.get("num_attention_heads")) or stored.heads,
        stored.positions or kind.positions,
        _eps(path, config, kind.eps),
        shown.image_size or _count(config.get("image_size")),
        shown.mean,
        shown.std,
        {key: config[key] for key in _ROTARY if key in config},
    )


def _told_by_names(tensors: Mapping[str, Tensor]) -> str:
    names = tensors.keys()
    if any(name.endswith("register_tokens") for name in names):
        is_placed = any(name.endswith("position_embeddings") for name in names)
        return "dinov2_with_registers" if is_placed else "dinov3_vit"
    has_layer_scale = any(name.endswith(".lambda1") for name in names)
    return "dinov2" if has_layer_scale else "vit"


def _require_plain(path: Path, config: Mapping[str, Any]) -> None:
    """Raise an error for settings that no tensor tells and no network here has."""
    for key, wanted in (("hidden_act", "gelu"), ("use_swiglu_ffn", False)):
        if (stated := config.get(key, wanted)) != wanted:
            raise UserError(
                f"{path} says {key}={name_of(str(stated))}, which is not supported; wanted "
                f"{key}={str(wanted).lower()}"
            )


def _count(stated: object) -> int | None:
    is_count = isinstance(stated, int) and not isinstance(stated, bool) and 0 < stated < 2**16
    return stated if is_count and isinstance(stated, int) else None


def _eps(path: Path, config: Mapping[str, Any], usual: float) -> float:
    stated = config.get("layer_norm_eps", usual)
    if not isinstance(stated, int | float) or not 0 < stated < 1 or not math.isfinite(stated):
        raise UserError(
            f"{path} says layer_norm_eps={name_of(str(stated))}; wanted a small number, e.g. 1e-6"
        )
    return float(stated)
