"""A recipe of a fine-tuning with its starting point and the input that the network wants."""

import os
from collections.abc import Sequence
from pathlib import Path

import timm

from attmask import checkpoint
from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.run import CHECKPOINTS, CONFIG
from attmask.run_config import from_yaml, override
from attmask.tuning.config import AnyTuned

_OF_THE_NETWORK = ("channels", "mean", "std", "bits")


def complete(recipe: AnyTuned, start: str | Path, out: Path, overrides: Sequence[str]) -> AnyTuned:
    """A recipe with its starting point, the input that the network wants, and overrides on top.

    A run that goes on has all of it in its own settings.
    """
    _refuse_epochs_of_a_length_in_steps(recipe, overrides)
    named = absolute(str(start))
    if (out / CONFIG).is_file():
        there = from_yaml(out / CONFIG, type(recipe))  # another kind of run is refused
        if checkpoint.newest(out / CHECKPOINTS) is not None:
            return override(_with_input(recipe, named, there), overrides)
    return override(_with_input(recipe, named, load_model(named)), overrides)


def _refuse_epochs_of_a_length_in_steps(recipe: AnyTuned, overrides: Sequence[str]) -> None:
    """Raise an error for a number of epochs that would be computed from that of the steps."""
    steps = getattr(recipe.schedule, "steps", None)
    asked = {text.partition("=")[0].strip(): text for text in overrides}
    if steps is not None and "schedule.epochs" in asked and "schedule.steps" not in asked:
        raise UserError(
            f"{asked['schedule.epochs']} was given, but the recipe is {steps} steps long; use "
            "schedule.steps, or add schedule.steps=null"
        )


def _with_input(recipe: AnyTuned, start: str, known: FrozenModel | AnyTuned) -> AnyTuned:
    """The settings with what the network says of its images; a size that is set stays."""
    data = {name: getattr(known.data, name) for name in _OF_THE_NETWORK}
    changed = recipe.model_copy(
        update={
            "network": recipe.network.model_copy(update={"start": start}),
            "data": recipe.data.model_copy(update=data),
        }
    )
    return changed.with_image_size(known.image_size)


def absolute(named: str) -> str:
    """The same checkpoint from any folder: a path becomes absolute, also one that is gone."""
    before, at, after = named.rpartition("@")
    for path, rest in ((named, ""), (before, f"{at}{after}")):
        if path and Path(path).exists():
            return f"{os.path.normpath(Path(path).absolute())}{rest}"
    is_name = named.startswith(("timm:", "hf_hub:", "hf-hub:")) or timm.is_model(before or named)
    if is_name:
        return named
    return f"{os.path.normpath(Path(before or named).absolute())}{at}{after if at else ''}"
