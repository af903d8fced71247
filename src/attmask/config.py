"""The settings of a pre-training run: recipes and `key=value` in, one checked config out.

config = override(load_recipe("ibot-high"), ["views.local_crops=2", "seed=3"])
"""

import difflib
import json
import math
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
import yaml
from pydantic import ValidationError, field_validator, model_validator
from pydantic.fields import FieldInfo

from attmask.checkpoint import CheckpointConfig
from attmask.data.sources import DataConfig
from attmask.data.views import ViewsConfig
from attmask.errors import UserError
from attmask.losses import LossConfig
from attmask.masking import MaskingConfig
from attmask.models.backbone import BackboneConfig
from attmask.models.heads import HeadConfig
from attmask.monitor import MonitorConfig
from attmask.optim import OptimConfig
from attmask.schedules import ScheduleConfig
from attmask.settings import Config, setting


class TrainConfig(Config):
    """How the steps are computed."""

    batch_size: int = setting(
        240, "images per optimiser step, over all processes", paper="240 (300 epochs: 800)", ge=1
    )
    accumulate: int = setting(
        1, "micro-batches a batch is split into, to save memory", operational=True, ge=1
    )
    precision: Literal["auto", "bf16", "fp16", "fp32"] = setting(
        "auto", "number format of the forward pass (auto: bf16 where the hardware has it, or fp32)"
    )
    compile: bool = setting(False, "compile the network with torch.compile", operational=True)
    device: str = setting(
        "auto",
        "cpu, cuda, cuda:1, mps, ... (auto: an accelerator if there is one)",
        operational=True,
    )
    workers: int | None = setting(
        None, "processes that prepare views (null: by the number of cores)", operational=True, ge=0
    )
    threads: int | None = setting(
        None, "threads of the training process (null: PyTorch's choice)", operational=True, ge=1
    )

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        try:
            if device != "auto":
                torch.device(device)
        except RuntimeError as fault:
            raise ValueError(f"{device!r} is no device; use auto, cpu, cuda or cuda:1") from fault
        return device


class PretrainConfig(Config):
    """Everything that describes one pre-training run."""

    seed: int = setting(0, "the root of all randomness", ge=0, lt=2**63)
    data: DataConfig = setting(DataConfig(), "the images")
    views: ViewsConfig = setting(ViewsConfig(), "the crops of an image and their augmentation")
    backbone: BackboneConfig = setting(BackboneConfig(), "the vision transformer")
    head: HeadConfig = setting(HeadConfig(), "the projection head")
    masking: MaskingConfig = setting(MaskingConfig(), "what is hidden from the student")
    loss: LossConfig = setting(LossConfig(), "the distillation losses")
    schedule: ScheduleConfig = setting(ScheduleConfig(), "what changes from step to step")
    optim: OptimConfig = setting(OptimConfig(), "the optimiser")
    train: TrainConfig = setting(TrainConfig(), "how the steps are computed")
    checkpoint: CheckpointConfig = setting(CheckpointConfig(), "when to save, what to keep")
    monitor: MonitorConfig = setting(MonitorConfig(), "what to measure on the way")

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainConfig":
        problems = [*_size_problems(self), *_warm_up_problems(self), *_other_problems(self)]
        if problems:
            raise ValueError("; ".join(problems))
        return self


def _size_problems(config: PretrainConfig) -> Iterator[str]:
    patch = config.backbone.patch
    sizes = {"views.global_size": config.views.global_size}
    if config.views.local_crops:
        sizes["views.local_size"] = config.views.local_size
    for key, size in sizes.items():
        if size % patch:
            below = size // patch * patch
            choice = f"{below} or {below + patch}" if below else f"{patch}"
            yield f"{key}: image size {size} is not a multiple of patch size {patch}; use {choice}"


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
            "loss.centring=sinkhorn balances a whole batch and cannot be split; "
            "use train.accumulate=1 or loss.centring=mean"
        )
    layer, depth = config.masking.layer, config.backbone.depth
    if layer is not None and depth is not None and layer > depth:
        yield f"masking.layer={layer} is beyond the backbone's {depth} blocks; use 1 to {depth}"
    if config.masking.strategy == "none" and config.loss.patch_weight > 0:
        # Probability 0 has no patch loss either, but it is a row of the paper (Table 9b).
        yield (
            "masking.strategy=none leaves the patch loss without a patch; set loss.patch_weight=0 "
            "(DINO) or choose a strategy"
        )


@dataclass(frozen=True)
class SettingLine:
    """One setting as shown to a user; `key=value` is a valid override."""

    key: str
    value: str
    meaning: str
    paper: str


def from_yaml(path: Path) -> PretrainConfig:
    """Read a config that `to_yaml` wrote."""
    return checked(PretrainConfig, parse_yaml(path.read_text(), str(path)), f"{path}: ")


def to_yaml(config: PretrainConfig) -> str:
    """Every setting, so that a later default cannot change what was run."""
    return yaml.dump(config.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False)


def override(config: PretrainConfig, assignments: Sequence[str]) -> PretrainConfig:
    """Replace settings by `key=value`; values are YAML: 3, 1e-4, null, [0.1, 0.3]."""
    values = config.model_dump()
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"{assignment!r} is not key=value, such as views.local_crops=2")
        if key not in dict(_fields(PretrainConfig)):
            raise UserError(unknown("setting", key, [name for name, _ in _fields(PretrainConfig)]))
        *groups, name = key.split(".")
        target = values
        for group in groups:
            target = target[group]
        target[name] = parse_yaml(text, assignment)
    return checked(PretrainConfig, values, "")


def describe(config: PretrainConfig) -> list[SettingLine]:
    """Every setting with its value, its meaning and the paper's value."""
    return [
        SettingLine(
            key, _text(attrgetter(key)(config)), field.description or "", _extra(field)["paper"]
        )
        for key, field in _fields(PretrainConfig)
    ]


def differences(there: PretrainConfig, asked: PretrainConfig) -> list[str]:
    """The settings that would change the result and are not the same in both."""
    return [
        f"{key}: {attrgetter(key)(there)} there, {attrgetter(key)(asked)} asked"
        for key, field in _fields(PretrainConfig)
        if not _extra(field)["operational"] and attrgetter(key)(there) != attrgetter(key)(asked)
    ]


def _fields(model: type[Config], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The dotted names of all settings of a config class."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Config):
            yield from _fields(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def _extra(field: FieldInfo) -> dict[str, Any]:
    """The paper's value of a setting, and whether it is operational."""
    assert isinstance(field.json_schema_extra, dict)
    return field.json_schema_extra


_Checked = TypeVar("_Checked", bound=Config)


def checked(model: type[_Checked], values: object, origin: str) -> _Checked:
    """Build a config; what is wrong with it becomes one line."""
    try:
        return model.model_validate(values)
    except ValidationError as fault:
        problems: dict[str, list[str]] = {}
        for error in fault.errors(include_url=False):
            key = _key(model, error["loc"])
            shown = "=".join(filter(None, [key, _text(error["input"])]))
            if error["type"] == "value_error":
                shown, reason = key, str(error["ctx"]["error"])
            elif error["type"] == "extra_forbidden":
                shown, reason = "", unknown("setting", key, [name for name, _ in _fields(model)])
            else:
                reason = error["msg"].replace("Input should", "should").replace("tuple", "list")
                reason = re.sub(r"a valid dictionary.*", "a group of settings", reason)
                if str(error["input"]) == "none":
                    reason += " (nothing is written null)"
            problems.setdefault(shown, []).append(reason)
        lines = [": ".join(filter(None, [k, " or ".join(v)])) for k, v in problems.items()]
        raise UserError(origin + "; ".join(lines)) from None


def _key(model: type[Config], location: tuple[int | str, ...]) -> str:
    """The dotted name of a setting, without the places inside its value."""
    key: list[str] = []
    for part in map(str, location):
        key.append(part)
        field = model.model_fields.get(part)
        if field is None or not isinstance(field.annotation, type):
            break
        if not issubclass(field.annotation, Config):
            break
        model = field.annotation
    return ".".join(key)


def unknown(kind: str, name: str, names: Sequence[str]) -> str:
    """Says that a name is unknown, and which ones are near."""
    inside = [known for known in names if known.startswith(f"{name}.")]
    same_end = [known for known in names if known.endswith("." + name.rpartition(".")[2])]
    near = inside or same_end or difflib.get_close_matches(name, names)
    command = "attmask recipes" if kind == "recipe" else "attmask config NAME"
    advice = f"did you mean {' or '.join(near[:3])}?" if near else f"`{command}` lists them"
    return f"there is no {kind} {name!r}; {advice}"


class _Loader(yaml.SafeLoader):
    """YAML in which 1e-4 is a number and a key that comes twice is refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(problem=f"the key {key} comes twice")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


class _Dumper(yaml.SafeDumper):
    """YAML with one line for each setting: [0.1, 0.5]."""


_Dumper.add_representer(
    list,
    lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True),
)


def parse_yaml(text: str | bytes, origin: str) -> Any:
    """YAML to plain values; `origin` says in an error where the text stood."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError) as fault:  # a date such as 2026-13-01 is a ValueError
        reason = " ".join(str(fault).split())
        if isinstance(fault, yaml.MarkedYAMLError):
            line = f" in line {fault.problem_mark.line + 1}" if fault.problem_mark else ""
            reason = f"{fault.problem}{line}"
        raise UserError(f"{origin!r} is not YAML: {reason}") from None


def _text(value: object) -> str:
    """A value as it is written in an override."""
    with suppress(UserError):
        if isinstance(value, str) and value.isprintable() and parse_yaml(value, value) == value:
            return value
    return json.dumps(value, default=str)
