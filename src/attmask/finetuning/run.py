"""A fine-tuning from its start to its results."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import timm

from attmask import checkpoint, distributed
from attmask.agreement import together
from attmask.data.pictures.endings import describe_skipped
from attmask.data.together import open_together
from attmask.divergence import DivergedError
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.finetuning.config import FinetuneConfig
from attmask.finetuning.data import divide
from attmask.finetuning.evaluation import SELECTS, SELECTS_MULTI_LABEL, ClassifierEvaluation
from attmask.finetuning.results import Results, conclude
from attmask.finetuning.start import starting_point
from attmask.finetuning.trainer import FinetuneTrainer
from attmask.heartbeat import Heartbeat
from attmask.loop import Outcome
from attmask.run import CHECKPOINTS, CONFIG
from attmask.run_config import from_yaml, override

log = logging.getLogger(__name__)

_OF_THE_NETWORK = ("channels", "mean", "std", "bits")


@dataclass(frozen=True)
class Finetuned:
    """How a fine-tuning ended, and what its networks reach if it was finished."""

    outcome: Outcome
    results: Results | None


def complete(
    recipe: FinetuneConfig, start: str | Path, out: Path, overrides: Sequence[str]
) -> FinetuneConfig:
    """A recipe with its starting point, the input that the network wants, and overrides on top.

    A run that goes on has all of it in its own settings.
    """
    named = _absolute(str(start))
    if (out / CONFIG).is_file():
        there = from_yaml(out / CONFIG, FinetuneConfig)  # another kind of run is refused
        if checkpoint.newest(out / CHECKPOINTS) is not None:
            return override(_with_input(recipe, named, there), overrides)
    return override(_with_input(recipe, named, load_model(named)), overrides)


def _with_input(
    recipe: FinetuneConfig, start: str, known: FrozenModel | FinetuneConfig
) -> FinetuneConfig:
    size = known.image_size if isinstance(known, FrozenModel) else known.augment.size
    data = {name: getattr(known.data, name) for name in _OF_THE_NETWORK}
    augment = {"size": recipe.augment.size or size}
    return recipe.model_copy(
        update={
            "network": recipe.network.model_copy(update={"start": start}),
            "data": recipe.data.model_copy(update=data),
            "augment": recipe.augment.model_copy(update=augment),
        }
    )


def _absolute(named: str) -> str:
    """The same checkpoint from any folder: a path becomes absolute, also one that is gone."""
    before, at, after = named.rpartition("@")
    for path, rest in ((named, ""), (before, f"{at}{after}")):
        if path and Path(path).exists():
            return f"{os.path.normpath(Path(path).absolute())}{rest}"
    is_name = named.startswith(("timm:", "hf_hub:", "hf-hub:")) or timm.is_model(before or named)
    if is_name:
        return named
    return f"{os.path.normpath(Path(before or named).absolute())}{at}{after if at else ''}"


def train_together(
    config: FinetuneConfig,
    data: Path,
    out: Path,
    named: str,
    heartbeat: Heartbeat,
    *,
    extend: bool,
) -> Finetuned:
    """Train to the end; a training that is no longer finite goes back to its last checkpoint."""
    images = open_together(data, index=out, channels=config.data.channels)
    log.info("%s, images of %s, run in %s", named, data, out)
    if images.skipped:
        log.info("%s", describe_skipped(images.skipped))
    with together():
        divided = divide(images, config.selection, config.labels)
    size = config.augment.size
    assert size is not None
    selects = SELECTS_MULTI_LABEL if divided.classes.multi_label else SELECTS
    while True:
        with together():
            start = starting_point(config.network.start, out, image_size=size)
        trainer = FinetuneTrainer(
            config,
            divided.train,
            start,
            divided.classes,
            selects=selects,
            heartbeat=heartbeat,
            extend=extend,
        )
        with together():
            trainer.folder.keep_origin(data)
            if distributed.is_main():
                images.keep_index(out)
        if distributed.is_main():
            log.info(
                "%d classes, evaluated on %s (%d images)",
                len(divided.classes),
                divided.selected_on,
                len(divided.selecting),
            )
        evaluation = ClassifierEvaluation(
            divided.selecting,
            divided.classes,
            config.data,
            image_size=size,
            workers=trainer.workers,
        )
        try:
            outcome = trainer.train(evaluation)
        except DivergedError as fault:
            trainer.folder.go_back(fault)
            del trainer  # its memory is needed for the next
            continue
        results = conclude(trainer, divided) if outcome.finished else None
        return Finetuned(outcome, results)
