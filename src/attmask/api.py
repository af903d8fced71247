"""The same things as on the command line, as functions."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from attmask import checkpoint, distributed
from attmask.audit.audit import MAX_IMAGES, inspect_images
from attmask.audit.record import Audit
from attmask.config import PretrainConfig, from_yaml, override
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.online import OnlineEvaluation
from attmask.models.backbone import Backbone, build_backbone
from attmask.recipe import load_recipe
from attmask.train import Outcome, Trainer

log = logging.getLogger(__name__)


def pretrain(
    data: str | Path,
    *,
    recipe: str | Path | PretrainConfig | None = None,
    out: str | Path,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> Outcome:
    """Pre-train on a folder of images; a run that is in `out` already goes on.

    `recipe` is a name, a YAML file or a config; by default `small` beside a GPU, `cpu` without.
    `overrides` are `key=value` texts or a mapping, e.g. {"schedule.epochs": 50}.
    """
    recipe = recipe or default_recipe()
    config = configure(recipe, overrides)
    images = open_images(Path(data), index=Path(out))
    trainer = Trainer(config, images.train, Path(out))
    if distributed.is_main():
        images.keep_index(Path(out))
    named = "own config" if isinstance(recipe, PretrainConfig) else f"recipe {recipe}"
    log.info("%s, images of %s, run in %s", named, data, out)
    evaluate = None
    if config.monitor.knn_every_epochs > 0 and not trainer.finished:
        evaluate = OnlineEvaluation(
            images,
            config.data,
            config.monitor,
            image_size=config.views.global_size,
            workers=trainer.workers,
        )
    return trainer.train(evaluate)


def inspect(
    data: str | Path, *, recipe: str | Path | None = None, max_images: int = MAX_IMAGES
) -> Audit:
    """Look at images before training on them: what is wrong with them, what to run, what it costs.

    At most `max_images` are looked at, evenly spread; `.to_dict()` of what is returned is JSON.
    """
    named = None if recipe is None else str(recipe)
    return inspect_images(Path(data), recipe=named, max_images=max_images)


def configure(
    recipe: str | Path | PretrainConfig | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> PretrainConfig:
    """A recipe with overrides on top."""
    if recipe is None:
        recipe = default_recipe()
    config = recipe if isinstance(recipe, PretrainConfig) else load_recipe(recipe)
    if isinstance(overrides, Mapping):
        overrides = [f"{key}={_as_yaml(value)}" for key, value in overrides.items()]
    return override(config, overrides)


def default_recipe() -> str:
    """The recipe for images nobody said anything about, by the machine."""
    return "small" if torch.accelerator.is_available() else "cpu"


def load_backbone(
    path: str | Path, *, network: Literal["teacher", "student"] = "teacher"
) -> Backbone:
    """The backbone of a run or of one of its checkpoints, ready to use; by default the teacher's.

    `.vit` of what is returned is a plain timm network.
    """
    folder = Path(path).absolute()
    run = folder if (folder / "config.yaml").is_file() else folder.parent.parent
    if not (run / "config.yaml").is_file():
        raise UserError(
            f"{path} is neither a run nor a checkpoint; give RUN or its step-... folder"
        )
    found = (
        checkpoint.load_newest(run / "checkpoints") if run == folder else checkpoint.load(folder)
    )
    if found is None:
        raise UserError(f"{path} has no checkpoint yet; start its training again to make one")
    config = from_yaml(run / "config.yaml")
    backbone = build_backbone(
        config.backbone.model_copy(update={"pretrained": False}),
        image_size=config.views.global_size,
        channels=config.data.channels,
        layer=config.masking.layer,
    )
    prefix = f"{network}.backbone."
    weights = found.tensors["weights"].items()
    backbone.load_state_dict(
        {k.removeprefix(prefix): t for k, t in weights if k.startswith(prefix)}
    )
    return backbone.eval()


def _as_yaml(value: Any) -> str:
    """A Python value as the text of an override."""
    if value is None:
        return "null"
    return str(list(value) if isinstance(value, tuple) else value)
