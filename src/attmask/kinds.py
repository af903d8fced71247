"""The kinds of training, by the settings that each has."""

from pathlib import Path

from attmask.config import PretrainConfig
from attmask.detection.config import DetectConfig
from attmask.finetuning.config import FinetuneConfig
from attmask.run_config import RunConfig, any_config, read_yaml
from attmask.segmentation.config import SegmentConfig

TUNED: tuple[type[RunConfig], ...] = (FinetuneConfig, SegmentConfig, DetectConfig)
"""The kinds of `attmask finetune`."""
KINDS: tuple[type[RunConfig], ...] = (PretrainConfig, *TUNED)


def read_config(file: Path) -> RunConfig:
    """The settings of a run of any kind, from its config.yaml."""
    return any_config(read_yaml(file), KINDS, str(file))
