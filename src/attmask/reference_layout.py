"""Full checkpoints in the authors' layout: student, teacher, centres, AdamW and epoch.

It is that of iBOT and, with `dino_loss` and one centre, that of DINO:
    student, teacher     weights; the student's names begin with module.
    ibot_loss            center (1 K) and center2 (1 1 K)
    optimizer            AdamW's state_dict: two groups of parameters, decayed ones first
    epoch, args          epochs that are done; the pickled command line
    fp16_scaler          the state of the loss scaler, if there is one
"""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.models.weights_file import (
    listed,
    name_of,
    read_pickled,
    refuse_not_finite,
    refuse_unusable,
)
from attmask.optim import is_decayed

_WANTED = "a full checkpoint of AttMask, iBOT or DINO: student, teacher, optimizer and epoch"
_MASK_TOKEN = "backbone.mask_token"
_NORM, _DIRECTION = (f"last_layer.parametrizations.weight.original{i}" for i in (0, 1))
_SAME_LAYER = "head.last_layer2."
_ORDER = (
    r"backbone\.vit\.cls_token",
    r"backbone\.vit\.pos_embed",
    r"backbone\.mask_token",
    r"backbone\.vit\.patch_embed\.()(proj)\.(weight|bias)",
    r"backbone\.vit\.blocks\.(\d+)\.(norm[12]|attn\.qkv|attn\.proj|mlp\.fc[12])\.(weight|bias)",
    r"backbone\.vit\.()(norm)\.(weight|bias)",
    r"head\.mlp\.(\d+)()\.(weight|bias)",
    r"head\.()(last_layer)\.parametrizations\.weight\.(original[01])",
)
_INSIDE = ["", "proj", "norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"]
_INSIDE += ["norm", "last_layer"]
_ENDS = ["", "weight", "bias", "original0", "original1"]
_MOMENTS = ("exp_avg", "exp_avg_sq")
_STEP = "step"
_ADAMW: dict[str, Any] = {
    "lr": 0.0,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "weight_decay": 0.0,
    "amsgrad": False,
    "foreach": None,
    "maximize": False,
    "capturable": False,
    "differentiable": False,
    "fused": None,
    "decoupled_weight_decay": True,
}
"""What PyTorch writes beside the parameters of a group; rates are set anew at every step."""


@dataclass(frozen=True)
class ReferenceCheckpoint:
    """A checkpoint of the authors' code under our names; tensors are in the order of their file."""

    student: Mapping[str, Tensor]
    teacher: Mapping[str, Tensor]
    cls_centre: Tensor
    patch_centre: Tensor | None
    """None in a checkpoint of DINO."""
    moments: Mapping[str, Tensor]
    """AdamW's state, as `optim.optimizer_tensors` names it."""
    epoch: int
    step: int | None = None
    """The exact step, which our own files say beside the epoch."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    scaler: Mapping[str, Any] = field(default_factory=dict)

    @property
    def optimizer_steps(self) -> int:
        """The steps that AdamW has counted."""
        counts = (int(t) for name, t in self.moments.items() if name.endswith(f":{_STEP}"))
        return max(counts, default=0)


def our_name(theirs: str) -> str:
    """The name that a parameter of the authors' networks has in ours."""
    if theirs == "backbone.masked_embed":
        return _MASK_TOKEN
    theirs = theirs.replace("last_layer.weight_g", _NORM).replace("last_layer.weight_v", _DIRECTION)
    return f"backbone.vit.{theirs[9:]}" if theirs.startswith("backbone.") else theirs


def their_name(ours: str) -> str:
    """The name that a parameter of our networks has in the authors'."""
    if ours == _MASK_TOKEN:
        return "backbone.masked_embed"
    ours = ours.replace(_NORM, "last_layer.weight_g").replace(_DIRECTION, "last_layer.weight_v")
    return ours.replace("backbone.vit.", "backbone.", 1)


def read_reference(path: Path) -> ReferenceCheckpoint:
    """Read a full checkpoint of the authors' code; nothing in its pickle runs."""
    if not path.is_file():
        raise UserError(f"there is no file {path}; give {_WANTED}")
    content = read_pickled(path)
    parts = content if isinstance(content, Mapping) else {}
    absent = [name for name in ("student", "teacher", "optimizer", "epoch") if name not in parts]
    if absent:
        found = listed(map(str, parts)) if parts else type(content).__name__
        raise UserError(f"{path} has no {absent[0]}: found {found}; wanted {_WANTED}")
    student = _weights(path, parts, "student")
    centres = parts.get("ibot_loss", parts.get("dino_loss"))
    cls_centre, patch_centre = _centre(path, centres, "center"), _centre(path, centres, "center2")
    if cls_centre is None:
        raise UserError(f"{path} has no centre in ibot_loss or dino_loss; wanted {_WANTED}")
    arguments, scaler = parts.get("args"), parts.get("fp16_scaler")
    return ReferenceCheckpoint(
        student,
        _weights(path, parts, "teacher"),
        cls_centre,
        patch_centre,
        _moments(path, parts["optimizer"], student),
        _count(path, "epoch", parts["epoch"]),
        _count(path, _STEP, parts[_STEP]) if _STEP in parts else None,
        vars(arguments) if isinstance(arguments, argparse.Namespace) else {},
        scaler if isinstance(scaler, Mapping) else {},
    )


def reference_content(saved: ReferenceCheckpoint) -> dict[str, Any]:
    """The content of a file in the authors' layout."""
    assert saved.patch_centre is not None
    names = sorted(saved.student, key=lambda name: place_of(name) or ())
    student = {their_name(name): saved.student[name] for name in names}
    teacher = {their_name(name): saved.teacher[name] for name in names if name != _MASK_TOKEN}
    return {
        "student": {f"module.{name}": tensor for name, tensor in _twice(student).items()},
        "teacher": _twice(teacher),
        "optimizer": _optimizer_content(saved, names),
        "epoch": saved.epoch,
        _STEP: saved.step,
        "args": argparse.Namespace(**saved.arguments),
        "ibot_loss": {
            "center": saved.cls_centre.reshape(1, -1),
            "center2": saved.patch_centre.reshape(1, 1, -1),
        },
        **({"fp16_scaler": dict(saved.scaler)} if saved.scaler else {}),
    }


def place_of(name: str) -> tuple[int, ...] | None:
    """The place of a parameter of ours in the authors' order; None if their networks have none."""
    for number, pattern in enumerate(_ORDER):
        if (found := re.fullmatch(pattern, name)) is not None:
            layer, inside, end = ([*found.groups(), "", "", ""])[:3]
            return number, int(layer or 0), _INSIDE.index(inside or ""), _ENDS.index(end or "")
    return None


def _twice(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights with the last layer under its second name: iBOT's head is shared."""
    again = {n.replace("head.last_layer.", _SAME_LAYER): t for n, t in named.items()}
    return {**named, **again}


def _optimizer_content(saved: ReferenceCheckpoint, names: list[str]) -> dict[str, Any]:
    state: dict[int, dict[str, Tensor]] = {}
    groups: list[dict[str, Any]] = []
    number = 0
    for members in _groups(saved.student, names):
        first = number
        for name in members:
            if f"{name}:{_STEP}" in saved.moments:
                keys = (_STEP, *_MOMENTS)
                state[number] = {key: saved.moments[f"{name}:{key}"] for key in keys}
            number += 1
        groups.append({**_ADAMW, "params": list(range(first, number))})
    return {"state": state, "param_groups": groups}


def _groups(weights: Mapping[str, Tensor], names: list[str]) -> tuple[list[str], list[str]]:
    """The names of the parameters with weight decay, and of those without."""
    decayed = {n for n in names if is_decayed(n, nn.Parameter(weights[n], requires_grad=False))}
    return [n for n in names if n in decayed], [n for n in names if n not in decayed]


def _weights(path: Path, parts: Mapping[Any, Any], which: str) -> dict[str, Tensor]:
    """The weights of the student or the teacher under our names; a shared head counts once."""
    stored = parts[which]
    if not isinstance(stored, Mapping) or not stored:
        raise UserError(f"{path} has no weights in {which}; wanted {_WANTED}")
    named: dict[str, Tensor] = {}
    again: dict[str, Tensor] = {}
    for name, tensor in stored.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise UserError(f"{path} has something else than tensors in {which}; wanted {_WANTED}")
        plain = name.removeprefix("module.").removeprefix("_orig_mod.")
        (again if plain.startswith(_SAME_LAYER) else named)[plain] = tensor
    refuse_unusable(path, {**named, **again})
    refuse_not_finite(path, named)
    for name, tensor in again.items():
        other = named.get(name.replace(_SAME_LAYER, "head.last_layer."))
        if other is None or not torch.equal(other, tensor):
            raise UserError(
                f"{path} has a last layer of its own for patches (shared_head=false); only "
                "one with a shared head can be resumed"
            )
    return {our_name(name): tensor.float() for name, tensor in named.items()}


def _centre(path: Path, stored: object, name: str) -> Tensor | None:
    centre = stored.get(name) if isinstance(stored, Mapping) else None
    if not isinstance(centre, Tensor):
        return None
    refuse_unusable(path, {name: centre})
    refuse_not_finite(path, {name: centre})
    return centre.flatten().float()


def _moments(path: Path, stored: object, student: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """AdamW's state under our names: its numbers count the parameters, decayed ones first."""
    groups = stored.get("param_groups") if isinstance(stored, Mapping) else None
    state = stored.get("state") if isinstance(stored, Mapping) else None
    if not isinstance(groups, list) or not isinstance(state, Mapping):
        raise UserError(f"{path} has no state of AdamW in optimizer; wanted {_WANTED}")
    numbers = [g.get("params") if isinstance(g, Mapping) else None for g in groups]
    wanted = _groups(student, list(student))
    sizes = [len(own) if isinstance(own, list) else -1 for own in numbers]
    if sizes == [len(wanted[0]) - 1, len(wanted[1])]:
        raise UserError(
            f"{path} was trained with norm_last_layer=true; this package always trains the norms "
            "of the prototypes (norm_last_layer=false), so it cannot be resumed"
        )
    if sizes != [len(own) for own in wanted]:
        raise UserError(
            f"{path} has an optimizer of {sizes} parameters, but a student of "
            f"{[len(own) for own in wanted]}; wanted one group with weight decay and one without"
        )
    moments: dict[str, Tensor] = {}
    for own, names in zip(numbers, wanted, strict=True):
        for number, name in zip(own or (), names, strict=True):
            if isinstance(number, int) and number in state:
                moments |= _moments_of(path, name, state[number], student[name])
    refuse_unusable(path, moments)
    refuse_not_finite(path, moments)
    return moments


def _moments_of(path: Path, name: str, state: object, weight: Tensor) -> dict[str, Tensor]:
    values = {k: state.get(k) if isinstance(state, Mapping) else None for k in (_STEP, *_MOMENTS)}
    if isinstance(count := values[_STEP], int | float):
        values[_STEP] = torch.tensor(float(count))
    for key, value in values.items():
        shape = () if key == _STEP else tuple(weight.shape)
        if not isinstance(value, Tensor) or tuple(value.shape) != shape:
            found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise UserError(
                f"{path} has {key} of {name_of(their_name(name))} as {found} in its optimizer; "
                f"wanted the shape {shape}"
            )
    return {f"{name}:{k}": v.float() for k, v in values.items() if isinstance(v, Tensor)}


def _count(path: Path, name: str, stated: object) -> int:
    if isinstance(stated, bool) or not isinstance(stated, int) or not 0 <= stated < 2**40:
        raise UserError(f"{path} says {name}={name_of(str(stated))}; wanted a number of them")
    return stated
