"""Training as functions: before, from start to end, again, and how it stands."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from attmask.adaptation.complete import complete as with_start
from attmask.agreement import together
from attmask.api.overriding import assignments
from attmask.audit.audit import Audit
from attmask.audit.inspect import MAX_IMAGES, inspect_images
from attmask.config import PretrainConfig
from attmask.data.sources import images_path
from attmask.errors import UserError
from attmask.heartbeat import Heartbeat
from attmask.kinds import KINDS
from attmask.loop import Outcome
from attmask.planning.devices import find_device
from attmask.planning.planner import UTILISATION, plan_run
from attmask.planning.record import RunPlan
from attmask.pretraining import pretrain_together
from attmask.recipe import load_recipe
from attmask.run import (
    check_settings,
    default_folder,
    origin_of,
    saved_config,
)
from attmask.run_config import override
from attmask.run_status import Status, read_status
from attmask.trainings import alone_in, tune_together, tuning_recipe
from attmask.tuning.complete import complete
from attmask.tuning.config import TunedConfig
from attmask.tuning.results import Finetuned


def pretrain(
    data: str | Path,
    *,
    recipe: str | Path | PretrainConfig | None = None,
    out: str | Path,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    extend: bool = False,
    resume_from: str | Path | None = None,
) -> Outcome:
    """Pre-train on a folder of images; an existing run in `out` is resumed.

    `recipe` is a name, a YAML file or a config; the default is `small` with a GPU, else `cpu`.
    `overrides` are `key=value` strings or a mapping, e.g. {"schedule.epochs": 50}. With `extend`,
    an existing run may be given more epochs: its schedules are then those of the longer training.
    `resume_from` is a full checkpoint of AttMask, iBOT or DINO, which a new run goes on from;
    it cannot be combined with `init`.
    """
    recipe = recipe or default_recipe()
    named = "own config" if isinstance(recipe, PretrainConfig) else f"recipe {recipe}"
    base = recipe if isinstance(recipe, PretrainConfig) else load_recipe(recipe)
    folder, path, changes = Path(out), images_path(data), assignments(overrides)
    resumed = None if resume_from is None else Path(resume_from)
    asked = override(base, changes)
    if resumed is not None and asked.init is not None:
        raise UserError(
            f"--from {resumed} goes on with its own weights, but init={asked.init} was given too; "
            "leave init= out"
        )

    def train(heartbeat: Heartbeat) -> Outcome:
        with together():
            config = with_start(base, folder, changes)
        return pretrain_together(
            config, path, folder, named, heartbeat, extend=extend, resume_from=resumed
        )

    return alone_in(asked, folder, train)


def resume(
    run: str | Path,
    *,
    data: str | Path | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    extend: bool = False,
) -> Outcome:
    """Resume a run with its own settings and images; a finished run is left as it is.

    `data` is the path of the images if they have moved; `overrides` may change operational
    settings only, e.g. {"train.workers": 4}, and with `extend` the number of epochs.
    """
    folder = Path(run)
    config = saved_config(folder, KINDS)
    asked = override(config, assignments(overrides))
    check_settings(folder, config, asked, extend=extend)
    path = origin_of(folder) if data is None else images_path(data)
    if isinstance(asked, TunedConfig):
        tuning = partial(tune_together, asked, path, folder, "resuming", extend=extend)
        return alone_in(asked, folder, tuning).outcome
    assert isinstance(asked, PretrainConfig)
    training = partial(pretrain_together, asked, path, folder, "resuming", extend=extend)
    return alone_in(asked, folder, training)


def finetune(
    checkpoint: str | Path,
    data: str | Path,
    *,
    recipe: str | Path | TunedConfig = "own",
    out: str | Path,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    extend: bool = False,
) -> Finetuned:
    """Fine-tune a checkpoint on annotated images; an existing run in `out` is resumed.

    `checkpoint` may be anything that `evaluate` accepts, `recipe` is a name (`attmask recipes`), a
    YAML file or a config. It decides what is learned: classes of images (`own`, `cifar10`, ...), of
    pixels (`segment-own`, ...) or objects (`detect-own`, ...). `out` then works as a checkpoint of
    `evaluate`, `predict` and `load_backbone`.
    """
    given = recipe if isinstance(recipe, TunedConfig) else None
    named = "own config" if given else f"recipe {recipe}"
    base = given or tuning_recipe(str(recipe))
    folder, path, changes = Path(out), images_path(data), assignments(overrides)

    def train(heartbeat: Heartbeat) -> Finetuned:
        with together():
            config = complete(base, checkpoint, folder, changes)
        return tune_together(config, path, folder, named, heartbeat, extend=extend)

    return alone_in(override(base, changes), folder, train)


def default_finetune_out(
    checkpoint: str | Path,
    data: str | Path,
    recipe: str | Path,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> Path:
    """The default folder of a fine-tuning: named after data, recipe, checkpoint and settings."""
    base = tuning_recipe(recipe)
    start = re.sub(r"[^\w.-]+", "-", Path(str(checkpoint)).name)
    named = f"{Path(recipe).stem}-{start}"
    return default_folder(Path(data), named, base, override(base, assignments(overrides)))


def status(run: str | Path) -> Status:
    """Where a run stands and whether it is well, from any process or machine that sees its folder.

    `.to_dict()` of the result gives JSON.
    """
    return read_status(Path(run))


def default_out(
    data: str | Path, recipe: str | Path, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> Path:
    """The default folder of a run: named after data, recipe and changed settings."""
    return default_folder(
        Path(data), str(recipe), load_recipe(recipe), configure(recipe, overrides)
    )


def inspect(
    data: str | Path, *, recipe: str | Path | None = None, max_images: int = MAX_IMAGES
) -> Audit:
    """Inspect images before training: problems, recommended settings, time and memory.

    At most `max_images`, evenly spread, are examined; `.to_dict()` of the result gives JSON.
    """
    named = None if recipe is None else str(recipe)
    return inspect_images(images_path(data), recipe=named, max_images=max_images)


def plan(
    recipe: str | Path | PretrainConfig,
    *,
    device: str,
    processes: int = 1,
    images: int | None = None,
    utilisation: float = UTILISATION,
    core_images_per_second: float | None = None,
    memory_gb: float | None = None,
    tflops: float | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> RunPlan:
    """Plan a run before anything runs: memory, operations, time, data rate, checkpoint.

    `device` is a name of `attmask plan --help`, or any with `memory_gb` and `tflops`. `images` are
    those of the data set (default: ImageNet-1k), `utilisation` the share of the device's peak speed
    that is used. `.to_dict()` of the result gives JSON.
    """
    base = recipe if isinstance(recipe, PretrainConfig) else load_recipe(recipe)
    return plan_run(
        with_start(base, None, assignments(overrides)),
        find_device(device, processes=processes, memory_gb=memory_gb, tflops=tflops),
        recipe="own config" if isinstance(recipe, PretrainConfig) else str(recipe),
        processes=processes,
        images=images,
        utilisation=utilisation,
        core_images_per_second=core_images_per_second,
    )


def configure(
    recipe: str | Path | PretrainConfig | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> PretrainConfig:
    """A recipe with overrides on top."""
    if recipe is None:
        recipe = default_recipe()
    config = recipe if isinstance(recipe, PretrainConfig) else load_recipe(recipe)
    return override(config, assignments(overrides))


def default_recipe() -> str:
    """The default recipe for this machine."""
    return "small" if torch.accelerator.is_available() else "cpu"
