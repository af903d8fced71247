"""The names of transformers' DINOv3 (`DINOv3ViTModel`), as those of timm's `Eva`."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from attmask.models.importing.joined import join_attention_
from attmask.models.importing.renaming import Renamed, renamed

_NAMES = (
    (r"^embeddings\.(cls_token|mask_token)$", r"\1"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.patch_embeddings\.", "patch_embed.proj."),
    (r"^(?:model\.)?layer\.(\d+)\.", r"blocks.\1."),
    (r"\.attention\.([qkv])_proj\.", r".attn.\1."),
    (r"\.attention\.o_proj\.", ".attn.proj."),
    (r"\.layer_scale([12])\.lambda1$", r".gamma_\1"),
    (r"\.mlp\.up_proj\.", ".mlp.fc1."),
    (r"\.mlp\.down_proj\.", ".mlp.fc2."),
)
_LEFT_OUT = r"(classifier|rope_embeddings)\."


def dinov3_names(path: Path, tensors: Mapping[str, Tensor]) -> Renamed:
    """The tensors of a DINOv3 in the names of timm's Eva: `q_bias` and `v_bias`, none of keys."""
    found = renamed(path, tensors, _NAMES, prefix="dinov3_vit.", left_out=_LEFT_OUT)
    join_attention_(path, found.tensors, ("q", "k", "v"))
    for name in [n for n in found.tensors if n.endswith((".attn.q.bias", ".attn.v.bias"))]:
        found.tensors[f"{name.removesuffix('.bias')}_bias"] = found.tensors.pop(name)
    if "reg_token" in found.tensors and found.tensors["reg_token"].numel() == 0:
        del found.tensors["reg_token"]
    return found
