"""A config with the weights it starts from: the backbone and the input follow these weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import timm

from attmask import checkpoint
from attmask.adaptation.start import StartingWeights, kept_start
from attmask.config import PretrainConfig, backbone_problems
from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.network_names import TIMM
from attmask.models.backbone import BackboneConfig
from attmask.run import CHECKPOINTS, CONFIG
from attmask.run_config import from_yaml, override
from attmask.tuning.complete import absolute

_OF_THE_NETWORK = ("channels", "mean", "std", "bits")
_ARCHITECTURE = ("name", "patch_size", "width", "depth", "heads", "registers", "positions")


def complete(
    recipe: PretrainConfig, out: Path | None, overrides: Sequence[str] = ()
) -> PretrainConfig:
    """The recipe with overrides on top; where it starts from weights, with their architecture,
    channels, mean and std.

    A run in `out` that goes on has all of it in its own settings; None is for a plan.
    """
    asked = override(recipe, overrides)
    if asked.init is None:
        if out is not None:
            _refuse_nothing_to_adapt(asked)
        return asked
    named = absolute(asked.init)
    filled = _filled(recipe, named, out)
    own = [text for text in overrides if text.partition("=")[0].strip() != "init"]
    config = override(filled, own)
    for name in (*_ARCHITECTURE, "pretrained"):
        given, known = getattr(config.backbone, name), getattr(filled.backbone, name)
        if given != known:
            raise UserError(
                f"backbone.{name}={given} was given, but the backbone is that of init={named}, "
                f"where it is {known}; leave it out"
            )
    if problems := "; ".join(backbone_problems(config)):
        raise UserError(problems)
    return config


def load_start(config: PretrainConfig, out: Path) -> StartingWeights | None:
    """The weights that a run starts from, if it starts from any: its own copy where it goes on."""
    if config.init is None:
        return None
    kept = kept_start(out)
    if kept is not None and checkpoint.newest(out / CHECKPOINTS) is not None:
        return kept
    try:
        model = load_model(config.init)
    except UserError:
        if kept is not None and kept.init == config.init:
            return kept
        raise
    return StartingWeights(config.init, model.blueprint, model.backbone.state_dict())


def _filled(recipe: PretrainConfig, named: str, out: Path | None) -> PretrainConfig:
    """The recipe with what the weights say."""
    if out is not None and (out / CONFIG).is_file() and checkpoint.newest(out / CHECKPOINTS):
        there = from_yaml(out / CONFIG, PretrainConfig)
        backbone: BackboneConfig = there.backbone
        data = {name: getattr(there.data, name) for name in _OF_THE_NETWORK}
    else:
        model = load_model(named)
        backbone = _architecture(recipe.backbone, named, model)
        data = {name: getattr(model.data, name) for name in _OF_THE_NETWORK}
    kept = {name: getattr(recipe.backbone, name) for name in ("drop_path", "init_std")}
    return recipe.model_copy(
        update={
            "init": named,
            "backbone": backbone.model_copy(update=kept),
            "data": recipe.data.model_copy(update=data),
        }
    )


def _architecture(recipe: BackboneConfig, named: str, model: FrozenModel) -> BackboneConfig:
    """The settings that describe the backbone of the weights, as far as settings can.

    The network itself is built by the blueprint of the weights.
    """
    backbone = model.backbone
    base = model.blueprint.config or recipe
    known: dict[str, Any] = {
        "patch_size": backbone.patch_size,
        "width": backbone.width,
        "depth": backbone.depth,
        "heads": backbone.heads[0],
        "registers": backbone.prefix - 1,
        "positions": backbone.positions,
        "pretrained": False,
    }
    plain = named.removeprefix(TIMM).partition("@")[0]
    if timm.is_model(plain):
        known["name"] = plain
    return base.model_copy(update=known)


def _refuse_nothing_to_adapt(config: PretrainConfig) -> None:
    """Raise an error where a backbone is to be spared that has no weights worth it."""
    if config.schedule.freeze_backbone_epochs or not config.adapt.is_plain:
        raise UserError(
            "the settings spare a trained backbone (schedule.freeze_backbone_epochs, adapt.*), but "
            "there are no weights to start from; add init=WEIGHTS, which may be a run, a weights "
            "file, a Hugging Face directory, hf-hub:OWNER/NAME or timm:NAME"
        )
