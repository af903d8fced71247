"""The commands of the command line as functions."""

from attmask.api.evaluating import embed, evaluate, load_backbone, transform, write_embeddings
from attmask.api.exporting import export, publish
from attmask.api.predicting import detect, predict, segment
from attmask.api.showing import plot, report, visualize
from attmask.api.training import (
    configure,
    default_finetune_out,
    default_out,
    default_recipe,
    finetune,
    inspect,
    plan,
    pretrain,
    resume,
    status,
)

__all__ = [
    "configure",
    "default_finetune_out",
    "default_out",
    "default_recipe",
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
]
