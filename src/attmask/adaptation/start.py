"""The weights that a pre-training starts from, and the copy of them that its run keeps.

RUN/start/step-00000000/    the weights of the backbone, and how to build it
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from attmask import atomic, checkpoint
from attmask.checkpoint import WEIGHTS, Checkpoint
from attmask.errors import UserError
from attmask.models.backbone import Backbone
from attmask.models.blueprint import Blueprint
from attmask.overrides import checked

START = "start"
"""The folder of the copy."""


@dataclass(frozen=True, eq=False)
class StartingWeights:
    """The weights of a backbone and how to build it."""

    init: str
    """What the user named."""
    blueprint: Blueprint
    tensors: Mapping[str, Tensor]

    def build(self, layer: int | None) -> Backbone:
        """A backbone of its own with these weights, which reads the attention of a block."""
        own = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        blueprint = self.blueprint.model_copy(update={"layer": layer})
        return blueprint.build(own, self.init).train().requires_grad_(True)


def keep_start(run: Path, start: StartingWeights) -> None:
    """Write the copy, so that the run needs no other file; one of other weights is replaced."""
    folder = run / START
    try:
        if (old := checkpoint.newest(folder)) is not None:
            atomic.remove_folder(old)
    except OSError as fault:
        raise UserError(
            f"cannot replace {folder}: {fault.strerror}; {atomic.what_to_do(fault)}"
        ) from fault
    info = {"init": start.init, "blueprint": start.blueprint.model_dump(mode="json")}
    checkpoint.save(folder, Checkpoint(0, {WEIGHTS: start.tensors}, info), keep=1)


def kept_start(run: Path) -> StartingWeights | None:
    """The copy in a run, if it has one."""
    found = checkpoint.load_newest(run / START, only=[WEIGHTS])
    if found is None:
        return None
    named = str(found.info.get("init", ""))
    return StartingWeights(named, blueprint_in(found.info, run), found.tensors[WEIGHTS])


def blueprint_in(info: Mapping[str, Any], run: Path) -> Blueprint:
    """The architecture that a checkpoint of a run states, which follows its starting weights."""
    if "blueprint" not in info:
        raise UserError(
            f"{run} started from weights, but its checkpoint does not say what network they are "
            "of; use another checkpoint"
        )
    return checked(Blueprint, info["blueprint"], f"the checkpoint in {run}: blueprint.")
