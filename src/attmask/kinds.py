"""The kinds of training, by the settings that each has."""

from pathlib import Path
from typing import TypeAlias

from attmask.config import PretrainConfig
from attmask.finetuning.config import FinetuneConfig
from attmask.run_config import RunConfig, any_config, read_yaml

KINDS: tuple[type[RunConfig], ...] = (PretrainConfig, FinetuneConfig)
AnyConfig: TypeAlias = PretrainConfig | FinetuneConfig


def read_config(file: Path) -> RunConfig:
    """The settings of a run of any kind, from its config.yaml."""
    return any_config(read_yaml(file), KINDS, str(file))
