"""The names of transformers' DINOv2, with registers (`Dinov2WithRegistersModel`) or without."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from attmask.errors import UserError
from attmask.models.importing.joined import join_attention_
from attmask.models.importing.renaming import Renamed, renamed

_NAMES = (
    (r"^embeddings\.(cls_token|mask_token|register_tokens)$", r"\1"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^encoder\.layer\.(\d+)\.", r"blocks.\1."),
    (r"^layernorm\.", "norm."),
    (r"\.attention\.(?:attention\.query|q_proj)\.", ".attn.query."),
    (r"\.attention\.(?:attention\.key|k_proj)\.", ".attn.key."),
    (r"\.attention\.(?:attention\.value|v_proj)\.", ".attn.value."),
    (r"\.attention\.(?:output\.dense|o_proj)\.", ".attn.proj."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
)
_LEFT_OUT = r"(classifier|head)\."
_PREFIXES = ("dinov2_with_registers.", "dinov2.")


def dinov2_names(path: Path, tensors: Mapping[str, Tensor]) -> Renamed:
    """The tensors of a DINOv2 in timm's names; registers keep DINOv2's name."""
    prefix = next((p for p in _PREFIXES if any(n.startswith(p) for n in tensors)), "")
    found = renamed(path, tensors, _NAMES, prefix=prefix, left_out=_LEFT_OUT)
    if any(".mlp.weights_in." in name or ".mlp.gate_proj." in name for name in found.tensors):
        raise UserError(
            f"{path} has gated MLPs (SwiGLU, as DINOv2's giant), which are not supported; use "
            "DINOv2's small, base or large"
        )
    join_attention_(path, found.tensors, ("query", "key", "value"))
    return found
