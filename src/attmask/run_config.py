"""The settings that every training has, and what is done with the settings of any of them.

config = override(load_recipe("ibot-high"), ["views.local_crops=2", "seed=3"])
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, TypeVar

import torch
from pydantic import field_validator

from attmask.checkpoint import CheckpointConfig
from attmask.data.config import DataConfig
from attmask.errors import UserError
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
from attmask.schedules import LengthConfig
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


class RunConfig(Config):
    """What all trainings have; each kind adds its own groups, in its own order."""

    KIND: ClassVar[str]
    """What is trained, as it is named in config.yaml."""
    COMMAND: ClassVar[str]
    """The command that trains it."""
    ABOUT: ClassVar[str]
    """What it learns, in a few words."""
    ADDED_LATER: ClassVar[frozenset[str]] = frozenset()
    """Settings that runs of earlier versions lack: the defaults are what these runs did."""

    if TYPE_CHECKING:
        seed: int
        data: DataConfig
        schedule: LengthConfig
        optim: OptimConfig
        train: TrainConfig
        checkpoint: CheckpointConfig
        monitor: MonitorConfig


AnyRun = TypeVar("AnyRun", bound=RunConfig)


def from_yaml(path: Path, kind: type[AnyRun]) -> AnyRun:
    """Read the config of a run of a known kind, which `to_yaml` wrote."""
    return any_config(read_yaml(path), [kind], str(path))


def read_yaml(path: Path) -> object:
    """The content of a config.yaml, unchecked."""
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as fault:
        raise UserError(
            f"cannot read the settings {path}: {fault.strerror or fault}; restore the file"
        ) from fault
    return parse_yaml(content, str(path))


def any_config(
    values: object, kinds: Sequence[type[AnyRun]], where: str, *, whole: bool = True
) -> AnyRun:
    """Check the settings of a run of one of these kinds; in a `whole` file all must be stated."""
    stated = values if isinstance(values, Mapping) else {}
    name = str(stated.get("kind", "pretrain"))  # the first kind had no name
    kind = next((kind for kind in kinds if name == kind.KIND), None)
    if kind is None:
        wanted = " or ".join(kind.KIND for kind in kinds)
        raise UserError(
            f"{where} has the settings of a run of kind {name[:20]}, not {wanted}; choose another "
            "folder"
        )
    lacking = [name for name in kind.model_fields if name not in {*stated, *kind.ADDED_LATER}]
    if whole and isinstance(values, dict | None) and lacking:
        # A default in its place may be another value.
        raise UserError(f"{where} is incomplete: it has no {lacking[0]}; restore the file")
    return checked(kind, values, f"{where}: ")


def to_yaml(config: RunConfig) -> str:
    """Write every setting, so that a changed default cannot change a saved run."""
    return dump_yaml(config.model_dump(mode="json"))


def override(config: AnyRun, assignments: Sequence[str]) -> AnyRun:
    """Replace settings by `key=value`; values are YAML: 3, 1e-4, null, [0.1, 0.3]."""
    pairs = [assigned(text, example="schedule.epochs=50") for text in assignments]
    return with_values(config, pairs)


def differences(there: RunConfig, asked: RunConfig) -> list[str]:
    """The settings that affect the result and differ between the two."""
    return [
        f"{key}: {attrgetter(key)(there)} in the run, {attrgetter(key)(asked)} given"
        for key, field in fields_of(type(asked))
        if not extra_of(field)["operational"] and attrgetter(key)(there) != attrgetter(key)(asked)
    ]


def with_epochs(config: AnyRun, epochs: int) -> AnyRun:
    """The same settings for a training of another length."""
    return with_length(config, config.schedule.model_copy(update={"epochs": epochs}))


def with_length(config: AnyRun, other: LengthConfig) -> AnyRun:
    """The same settings for a training as long as another."""
    length = {name: getattr(other, name) for name in ("epochs", "steps") if hasattr(other, name)}
    schedule = config.schedule.model_copy(update=length)
    return config.model_copy(update={"schedule": schedule})


def batch_problems(config: RunConfig) -> Iterator[str]:
    """What is wrong with the number of micro-batches."""
    batch, parts = config.train.batch_size, config.train.accumulate
    if batch % parts:
        fewer = next(n for n in range(min(parts, batch), 0, -1) if batch % n == 0)
        yield (
            f"train.batch_size={batch} does not split into {parts} micro-batches; "
            f"use train.accumulate={fewer}"
        )


def warmup_problems(config: RunConfig, names: Sequence[str] = ("lr",)) -> Iterator[str]:
    """What is wrong with the length of warm-ups."""
    epochs = config.schedule.epochs
    for name in names:
        warm_up = getattr(config.schedule, f"{name}_warmup_epochs")
        if warm_up > epochs:
            yield (
                f"schedule.{name}_warmup_epochs={warm_up:g} is longer than the training of "
                f"{epochs} epochs; use at most {epochs}, or schedule.epochs={math.ceil(warm_up)}"
            )


def check_shares(config: RunConfig, processes: int) -> None:
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


def shared_settings(config: RunConfig) -> dict[str, object]:
    """The settings that all processes of a run must have alike: all but those of a machine."""
    of_machine = {"train.device", "train.workers", "train.threads"}
    keys = (key for key, _ in fields_of(type(config)))
    return {key: attrgetter(key)(config) for key in keys if key not in of_machine}
