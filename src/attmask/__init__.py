"""Pre-train vision transformers without labels, with attention-guided masking."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from attmask.primitives import bound_primitive_cache
from attmask.threads import bound_spinning

if TYPE_CHECKING:
    from attmask.api import (
        detect,
        embed,
        evaluate,
        export,
        finetune,
        inspect,
        load_backbone,
        plan,
        plot,
        predict,
        pretrain,
        publish,
        report,
        resume,
        segment,
        status,
        transform,
        visualize,
        write_embeddings,
    )
    from attmask.attention.cls import cls_attention, cls_attention_heads, watch_cls_attention
    from attmask.masking import Block, High, Hint, Low, Masker, Nothing, Random

__version__ = "0.1.0"

__all__ = [
    "Block",
    "High",
    "Hint",
    "Low",
    "Masker",
    "Nothing",
    "Random",
    "cls_attention",
    "cls_attention_heads",
    "detect",
    "embed",
    "evaluate",
    "export",
    "finetune",
    "inspect",
    "load_backbone",
    "plan",
    "plot",
    "predict",
    "pretrain",
    "publish",
    "report",
    "resume",
    "segment",
    "status",
    "transform",
    "visualize",
    "watch_cls_attention",
    "write_embeddings",
]

bound_primitive_cache()  # here, since it must come before PyTorch's first product
bound_spinning()  # and this before PyTorch is imported

_HOME = dict.fromkeys(
    (
        "detect",
        "embed",
        "evaluate",
        "export",
        "finetune",
        "inspect",
        "load_backbone",
        "plan",
        "plot",
        "predict",
        "pretrain",
        "publish",
        "report",
        "resume",
        "segment",
        "status",
        "transform",
        "visualize",
        "write_embeddings",
    ),
    "attmask.api",
) | dict.fromkeys(
    ("cls_attention", "cls_attention_heads", "watch_cls_attention"), "attmask.attention.cls"
)


def __getattr__(name: str) -> Any:
    """Import on first use: `attmask --help` need not wait for PyTorch."""
    if name not in __all__:
        raise AttributeError(f"attmask has no {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME.get(name, "attmask.masking")), name)
