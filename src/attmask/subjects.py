"""From what a user names to what is evaluated: a run, a checkpoint, a file of weights, timm."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from attmask import checkpoint
from attmask.config import PretrainConfig, from_yaml
from attmask.errors import UserError
from attmask.evaluation.reference import TIMM, imported
from attmask.evaluation.subject import Prototypes, Subject
from attmask.models.backbone import build_backbone
from attmask.models.heads import Head
from attmask.train import build_distiller

Which = Literal["teacher", "student", "untrained"]

_WEIGHTS = (".safetensors", ".pth", ".pt", ".bin")
_KINDS = "a run, one of its step-... folders, a file of weights (.safetensors, .pth) or timm:NAME"


def load_subject(named: str | Path, shown: str | None = None) -> Subject:
    """What `named` names, called `shown` in tables."""
    text = str(named)
    shown = shown or text
    if text.startswith(TIMM):
        return imported(text, shown)
    path, which = _which(text)
    if path.suffix in _WEIGHTS and path.is_file():
        return imported(text, shown)
    return load_run(path, which, shown)


def names_of(named: Sequence[str | Path]) -> list[str]:
    """Short names that tell them apart: the last part of each path, or all of it."""
    short = [Path(str(name)).name or str(name) for name in named]
    if len(set(short)) == len(set(map(str, named))):
        return short
    return [str(name) for name in named]


def load_run(path: Path, which: Which = "teacher", shown: str | None = None) -> Subject:
    """The network of a run or of one of its checkpoints."""
    folder = path.absolute()
    run = folder if (folder / "config.yaml").is_file() else folder.parent.parent
    is_step = folder.is_dir() and folder.parent == run / "checkpoints"
    if not (run / "config.yaml").is_file() or not (folder == run or is_step):
        raise UserError(f"{path} is no checkpoint; give {_KINDS}")
    config = from_yaml(run / "config.yaml")
    weights = _untrained(config) if which == "untrained" else _saved(path, folder, run)
    owner = "teacher" if which == "untrained" else which
    backbone = build_backbone(
        config.backbone.model_copy(update={"pretrained": False}),
        image_size=config.views.global_size,
        channels=config.data.channels,
        layer=config.masking.layer,
    )
    backbone.load_state_dict(_below(weights, f"{owner}.backbone."))
    return Subject(
        name=shown or path.name,
        backbone=backbone.eval().requires_grad_(False),
        image_size=config.views.global_size,
        data=config.data,
        prototypes=None if which == "student" else _prototypes(config, weights, backbone.width),
        folder=run,
    )


def _prototypes(config: PretrainConfig, weights: Mapping[str, Tensor], width: int) -> Prototypes:
    """Those of the teacher: centre and temperature are its own, and no student's."""
    head = Head(width, config.head)
    head.load_state_dict(_below(weights, "teacher.head."))
    return Prototypes(
        head.eval().requires_grad_(False),
        weights["cls_centre.value"],
        config.schedule.cls_temperature[-1],
        config.loss.centring,
    )


def _which(text: str) -> tuple[Path, Which]:
    """The path, and which of its networks is asked for behind an @."""
    before, at, after = text.rpartition("@")
    if at and not Path(text).exists():
        known: dict[str, Which] = {name: name for name in get_args(Which)}
        if after not in known:
            raise UserError(
                f"{text} asks for {after!r} of a run; use @teacher, @student or @untrained"
            )
        return Path(before), known[after]
    return Path(text), "teacher"


def _saved(path: Path, folder: Path, run: Path) -> Mapping[str, Tensor]:
    found = (
        checkpoint.load_newest(run / "checkpoints") if run == folder else checkpoint.load(folder)
    )
    if found is None:
        raise UserError(f"{path} has no checkpoint yet; start its training again to make one")
    return found.tensors["weights"]


def _untrained(config: PretrainConfig) -> Mapping[str, Tensor]:
    weights: Mapping[str, Tensor] = build_distiller(config).state_dict()
    return weights


def _below(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in weights.items() if k.startswith(prefix)}
