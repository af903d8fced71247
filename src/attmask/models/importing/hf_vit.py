"""The names of transformers' ViT (`ViTModel`, `ViTForImageClassification`, `ViTMAE...`)."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from attmask.models.importing.joined import join_attention_
from attmask.models.importing.renaming import Renamed, renamed

_NAMES = (
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.mask_token$", "mask_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^(?:encoder\.layer|layers)\.(\d+)\.", r"blocks.\1."),
    (r"^layernorm\.", "norm."),
    (r"(?<=\d)\.layernorm_before\.", ".norm1."),
    (r"(?<=\d)\.layernorm_after\.", ".norm2."),
    (r"(?<=\d)\.attention\.(?:attention\.query|q_proj)\.", ".attn.query."),
    (r"(?<=\d)\.attention\.(?:attention\.key|k_proj)\.", ".attn.key."),
    (r"(?<=\d)\.attention\.(?:attention\.value|v_proj)\.", ".attn.value."),
    (r"(?<=\d)\.attention\.(?:output\.dense|o_proj)\.", ".attn.proj."),
    (r"(?<=\d)\.intermediate\.dense\.", ".mlp.fc1."),
    (r"(?<=\d)\.output\.dense\.", ".mlp.fc2."),
)
_LEFT_OUT = r"(pooler|classifier|decoder)\."


def vit_names(path: Path, tensors: Mapping[str, Tensor]) -> Renamed:
    """The tensors of a ViT in timm's names."""
    found = renamed(path, tensors, _NAMES, prefix="vit.", left_out=_LEFT_OUT)
    join_attention_(path, found.tensors, ("query", "key", "value"))
    return found
