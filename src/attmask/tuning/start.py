"""Where a fine-tuning starts: the backbone of a checkpoint, or the run itself if it goes on."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attmask import checkpoint
from attmask.checkpoint import Checkpoint
from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.models.backbone import Backbone, patches_along
from attmask.models.blueprint import Blueprint
from attmask.overrides import checked


@dataclass(frozen=True, eq=False)
class StartingPoint:
    """A backbone to train, the size of its crops, and the folder of the run."""

    run: Path
    backbone: Backbone
    blueprint: Blueprint
    image_size: int


def saved_classifier(run: Path) -> Checkpoint | None:
    """The newest checkpoint of a fine-tuning run, if it has one."""
    return checkpoint.load_newest(run / "checkpoints", only=["weights"])


def starting_point(named: str, run: Path, *, image_size: int | None = None) -> StartingPoint:
    """The backbone of a checkpoint; where the run goes on, its own, which needs no other file.

    `image_size` is None where the sizes of images vary.
    """
    if (found := saved_classifier(run)) is not None:
        blueprint = blueprint_of(found.info, run)
        weights = {
            name.removeprefix("network.backbone."): tensor
            for name, tensor in found.tensors["weights"].items()
            if name.startswith("network.backbone.")
        }
        backbone = blueprint.build(weights, str(run))
    else:
        model = load_model(named)
        backbone, blueprint = model.backbone, model.blueprint
    size = blueprint.image_size if image_size is None else image_size
    patches_along(size, backbone.patch_size)
    return StartingPoint(run, backbone.train().requires_grad_(True), blueprint, size)


def blueprint_of(info: Mapping[str, Any], run: Path) -> Blueprint:
    """The architecture that a checkpoint of a fine-tuning says it has."""
    if "blueprint" not in info:
        raise UserError(f"{run} has a checkpoint of another kind; choose another --out")
    return checked(Blueprint, info["blueprint"], f"the checkpoint in {run}: blueprint.")
