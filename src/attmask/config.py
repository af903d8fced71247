"""The settings of a pre-training run: recipes and `key=value` in, one checked config out.

config = override(load_recipe("ibot-high"), ["views.local_crops=2", "seed=3"])
"""

import math
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Literal

import torch
from pydantic import field_validator, model_validator

from attmask.checkpoint import CheckpointConfig
from attmask.data.config import DataConfig
from attmask.data.views import ViewsConfig
from attmask.errors import UserError
from attmask.losses import LossConfig
from attmask.masking import MaskingConfig
from attmask.models.backbone import BackboneConfig
from attmask.models.heads import HeadConfig
from attmask.monitor import MonitorConfig
from attmask.optim import OptimConfig
from attmask.overrides import (
    assigned,
    checked,
    dump_yaml,
    extra_of,
    fields_of,
    parse_yaml,
    with_values,
)
from attmask.reading import MOST_BYTES, read_regular
from attmask.schedules import ScheduleConfig
from attmask.settings import Config, setting

_TWO_YEARS = 1_000_000  # in minutes; clocks of the system do not count much further


class TrainConfig(Config):
    """How the steps are computed."""

    batch_size: int = setting(
        240,
        "images per optimiser step, over all processes",
        paper="240 (300 epochs: 800)",
        ge=1,
        le=2**20,
    )
    accumulate: int = setting(
        1, "micro-batches a batch is split into, to save memory", operational=True, ge=1
    )
    precision: Literal["auto", "bf16", "fp16", "fp32"] = setting(
        "auto",
        "number format of the forward pass (auto: bf16 if the hardware supports it, else fp32)",
    )
    compile: bool = setting(False, "compile the network with torch.compile", operational=True)
    recompute: bool = setting(
        False,
        "recompute activations in the backward pass: less memory, more time",
        operational=True,
    )
    device: str = setting(
        "auto",
        "cpu, cuda, cuda:1, mps, ... (auto: an accelerator if available)",
        operational=True,
        max_length=100,
    )
    workers: int | None = setting(
        None,
        "worker processes that prepare views (null: from the number of cores)",
        operational=True,
        ge=0,
        le=1024,
    )
    threads: int | None = setting(
        None,
        "threads of the training process (null: PyTorch's default)",
        operational=True,
        ge=1,
        le=1024,
    )
    sharding: Literal["none", "fsdp"] = setting(
        "none",
        "what several processes hold: all weights each (none: DDP), or a part of networks and "
        "optimizer each (fsdp: FSDP2, for large backbones)",
        operational=True,
    )
    start_timeout_minutes: float = setting(
        10.0, "longest wait for all processes to start", operational=True, gt=0, le=_TWO_YEARS
    )
    timeout_minutes: float = setting(
        30.0, "longest wait for another process in a step", operational=True, gt=0, le=_TWO_YEARS
    )

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        try:
            if device != "auto":
                torch.device(device)
        except RuntimeError as fault:
            raise ValueError(
                f"{device!r} is not a device; use auto, cpu, cuda or cuda:1"
            ) from fault
        return device


class PretrainConfig(Config):
    """Everything that describes one pre-training run."""

    seed: int = setting(0, "random seed of weights, views, masks and drop path", ge=0, lt=2**63)
    data: DataConfig = setting(DataConfig(), "the images")
    views: ViewsConfig = setting(ViewsConfig(), "the crops of an image and their augmentation")
    backbone: BackboneConfig = setting(BackboneConfig(), "the vision transformer")
    head: HeadConfig = setting(HeadConfig(), "the projection head")
    masking: MaskingConfig = setting(MaskingConfig(), "which patches are hidden from the student")
    loss: LossConfig = setting(LossConfig(), "the distillation losses")
    schedule: ScheduleConfig = setting(
        ScheduleConfig(), "schedules of learning rate, weight decay, momentum and temperatures"
    )
    optim: OptimConfig = setting(OptimConfig(), "the optimiser")
    train: TrainConfig = setting(TrainConfig(), "how the steps are computed")
    checkpoint: CheckpointConfig = setting(
        CheckpointConfig(), "how often to save, and how many checkpoints to keep"
    )
    monitor: MonitorConfig = setting(MonitorConfig(), "logging and evaluation during training")

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainConfig":
        problems = [*_size_problems(self), *_warm_up_problems(self), *_other_problems(self)]
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _size_problems(config: PretrainConfig) -> Iterator[str]:
    patch = config.backbone.patch
    named = "backbone.name" if config.backbone.patch_size is None else "backbone.patch_size"
    sizes = {"views.global_size": config.views.global_size}
    if config.views.local_crops:
        sizes["views.local_size"] = config.views.local_size
    for key, size in sizes.items():
        if size % patch:
            below = size // patch * patch
            choice = f"{below} or {below + patch}" if below else f"{patch}"
            yield (
                f"{key}: image size {size} is not a multiple of patch size {patch}; use {choice}, "
                f"or another {named}"
            )


def _warm_up_problems(config: PretrainConfig) -> Iterator[str]:
    epochs = config.schedule.epochs
    for name in ("lr", "cls_temperature", "patch_temperature"):
        warm_up = getattr(config.schedule, f"{name}_warmup_epochs")
        if warm_up > epochs:
            yield (
                f"schedule.{name}_warmup_epochs={warm_up:g} is longer than the training of "
                f"{epochs} epochs; use at most {epochs}, or schedule.epochs={math.ceil(warm_up)}"
            )


def _other_problems(config: PretrainConfig) -> Iterator[str]:
    batch, parts = config.train.batch_size, config.train.accumulate
    if batch % parts:
        fewer = next(n for n in range(min(parts, batch), 0, -1) if batch % n == 0)
        yield (
            f"train.batch_size={batch} does not split into {parts} micro-batches; "
            f"use train.accumulate={fewer}"
        )
    if config.loss.centring == "sinkhorn" and parts > 1:
        yield (
            "loss.centring=sinkhorn balances over the full batch, which cannot be split; "
            "use train.accumulate=1 or loss.centring=mean"
        )
    layer, depth = config.masking.layer, config.backbone.depth
    if layer is not None and depth is not None and layer > depth:
        yield f"masking.layer={layer} is beyond the backbone's {depth} blocks; use 1 to {depth}"
    if config.masking.strategy == "none" and config.loss.patch_weight > 0:
        # Probability 0 has no patch loss either, but it is a row of the paper (Table 9b).
        yield (
            "masking.strategy=none hides no patch for the patch loss; set loss.patch_weight=0 "
            "(DINO) or choose a strategy"
        )


def from_yaml(path: Path) -> PretrainConfig:
    """Read a config that `to_yaml` wrote."""
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as fault:
        raise UserError(
            f"cannot read the settings {path}: {fault.strerror or fault}; restore the file"
        ) from fault
    values = parse_yaml(content, str(path))
    lacking = [name for name in PretrainConfig.model_fields if name not in (values or {})]
    if isinstance(values, dict | None) and lacking:  # a default in its place may be another value
        raise UserError(f"{path} is incomplete: it has no {lacking[0]}; restore the file")
    return checked(PretrainConfig, values, f"{path}: ")


def to_yaml(config: PretrainConfig) -> str:
    """Write every setting, so that a changed default cannot change a saved run."""
    return dump_yaml(config.model_dump(mode="json"))


def override(config: PretrainConfig, assignments: Sequence[str]) -> PretrainConfig:
    """Replace settings by `key=value`; values are YAML: 3, 1e-4, null, [0.1, 0.3]."""
    pairs = [assigned(text, example="views.local_crops=2") for text in assignments]
    return with_values(config, pairs)


def differences(there: PretrainConfig, asked: PretrainConfig) -> list[str]:
    """The settings that affect the result and differ between the two."""
    return [
        f"{key}: {attrgetter(key)(there)} in the run, {attrgetter(key)(asked)} given"
        for key, field in fields_of(PretrainConfig)
        if not extra_of(field)["operational"] and attrgetter(key)(there) != attrgetter(key)(asked)
    ]


def with_epochs(config: PretrainConfig, epochs: int) -> PretrainConfig:
    """The same settings for a training of another length."""
    schedule = config.schedule.model_copy(update={"epochs": epochs})
    return config.model_copy(update={"schedule": schedule})


def check_shares(config: PretrainConfig, processes: int) -> None:
    """Raise an error if a batch cannot be divided among processes and micro-batches."""
    batch, parts = config.train.batch_size, config.train.accumulate
    if batch % (processes * parts) == 0:
        return
    of_parts = "" if parts == 1 else f" with {parts} micro-batches each (train.accumulate)"
    unit = processes * parts
    below, above = batch // unit * unit, (batch // unit + 1) * unit
    choice = f"{below} or {above}" if below else f"{above}"
    raise UserError(
        f"train.batch_size={batch}, which counts the images of all processes, cannot be divided "
        f"among {processes} processes{of_parts}; use {choice}"
    )


def shared_settings(config: PretrainConfig) -> dict[str, object]:
    """The settings that all processes of a run must have alike: all but those of a machine."""
    of_machine = {"train.device", "train.workers", "train.threads"}
    keys = (key for key, _ in fields_of(PretrainConfig))
    return {key: attrgetter(key)(config) for key in keys if key not in of_machine}
