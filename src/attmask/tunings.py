"""Fine-tuning of any kind: classes, segments or boxes, by the settings that are given."""

from pathlib import Path

from attmask.detection.config import DetectConfig
from attmask.finetuning.config import FinetuneConfig
from attmask.heartbeat import Heartbeat
from attmask.kinds import TUNED
from attmask.recipe import recipe_among
from attmask.run_config import RunConfig
from attmask.segmentation.config import SegmentConfig
from attmask.tuning.config import TunedConfig
from attmask.tuning.results import Finetuned


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
