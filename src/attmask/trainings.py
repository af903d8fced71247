"""Trainings of any kind: alone in their folder; and fine-tuning on classes, segments or boxes."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from attmask import distributed
from attmask.agreement import require_same, together
from attmask.detection.config import DetectConfig
from attmask.finetuning.config import FinetuneConfig
from attmask.hardware import choose_device
from attmask.heartbeat import Heartbeat
from attmask.kinds import TUNED
from attmask.monitor import check_trackers
from attmask.presence import hold
from attmask.recipe import recipe_among
from attmask.run import refuse_other_folder
from attmask.run_config import RunConfig, shared_settings
from attmask.segmentation.config import SegmentConfig
from attmask.tuning.config import TunedConfig
from attmask.tuning.results import Finetuned

Ended = TypeVar("Ended")


def tuning_recipe(name_or_path: str | Path) -> TunedConfig:
    """The config of a recipe of `attmask finetune`, of any kind."""
    config: RunConfig = recipe_among(TUNED, name_or_path).config
    assert isinstance(config, TunedConfig)
    return config


def tune_together(
    config: TunedConfig,
    data: Path,
    out: Path,
    named: str,
    heartbeat: Heartbeat,
    *,
    extend: bool,
) -> Finetuned:
    """Train to the end, with all processes that were launched together."""
    if isinstance(config, SegmentConfig):
        from attmask.segmentation import run as segmentation

        return segmentation.train_together(config, data, out, named, heartbeat, extend=extend)
    if isinstance(config, DetectConfig):
        from attmask.detection import run as detection

        return detection.train_together(config, data, out, named, heartbeat, extend=extend)
    from attmask.finetuning import run as finetuning

    assert isinstance(config, FinetuneConfig)
    return finetuning.train_together(config, data, out, named, heartbeat, extend=extend)


def alone_in(config: RunConfig, out: Path, train: Callable[[Heartbeat], Ended]) -> Ended:
    """Train with all processes that were launched together, and nobody else, in a folder."""
    device = choose_device(config.train.device)
    start, late = config.train.start_timeout_minutes, config.train.timeout_minutes
    with distributed.processes(
        device, start_timeout=timedelta(minutes=start), timeout=timedelta(minutes=late)
    ):
        require_same(
            "settings",
            shared_settings(config),
            _different_settings,
            "start all with the same command",
        )
        with together():
            refuse_other_folder(out)
            check_trackers(config.monitor)
        with hold(out) as heartbeat:
            return train(heartbeat)


def _different_settings(other: Mapping[str, object], main: Mapping[str, object]) -> str:
    different = (key for key in main if other.get(key) != main[key])
    return "; ".join(f"{key}: {other.get(key)}, there {main[key]}" for key in different)
