"""A checkpoint of the authors' code becomes the first checkpoint of a run."""

import logging
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from attmask import checkpoint
from attmask.checkpoint import OPTIMIZER, WEIGHTS
from attmask.config import PretrainConfig
from attmask.data.source import Source
from attmask.data.subset import trained_on
from attmask.errors import UserError
from attmask.hardware import Precision, choose_device
from attmask.models.backbone import build_backbone
from attmask.models.network import Student
from attmask.models.weights_file import name_of
from attmask.reference_arguments import different_arguments
from attmask.reference_layout import ReferenceCheckpoint, read_reference, their_name
from attmask.run import CHECKPOINTS, RunFolder
from attmask.wording import counted

log = logging.getLogger(__name__)

_MASK_TOKEN = "backbone.mask_token"
_SETTINGS = {
    "head.last_layer": "head.prototypes",
    "head.mlp": "head.hidden, head.bottleneck or head.layers",
    "backbone.vit.pos_embed": "views.global_size or backbone.patch_size",
    "backbone.vit.patch_embed": "backbone.patch_size or backbone.name",
}


def start_from_reference(path: Path, config: PretrainConfig, source: Source, out: Path) -> None:
    """Write the first checkpoint of a run from the authors'; a run that has one goes on from it."""
    if checkpoint.newest(out / CHECKPOINTS) is not None:
        log.info("%s has checkpoints: the run goes on from them, not from %s", out, path)
        return
    found = read_reference(path)
    source = trained_on(source, config.data)
    steps_per_epoch = len(source) // config.train.batch_size
    step = _step(path, found, config, steps_per_epoch)
    weights = our_weights(path, found, config)
    scaler = Precision.choose(config.train.precision, choose_device(config.train.device)).scaler
    state = scaler.state_dict()
    folder = RunFolder(out, config, source)
    folder.write_again()
    folder.save(
        step,
        {WEIGHTS: weights, OPTIMIZER: dict(found.moments)},
        {
            "scaler": {key: found.scaler.get(key, value) for key, value in state.items()},
            "skipped_steps": 0,
            "reference": {"file": str(path.absolute()), "epoch": found.epoch},
        },
    )
    log.info(
        "%s: a checkpoint of the authors' code after %s, resumed at step %d of %d with "
        "student, teacher, centres and AdamW",
        path,
        counted(found.epoch, "epoch"),
        step,
        config.schedule.epochs * steps_per_epoch,
    )
    if others := different_arguments(config, found.arguments):
        log.warning("%s was trained with other settings: %s", path, "; ".join(others))
    if found.step is None and found.optimizer_steps != step:
        log.warning(
            "%s has seen %d steps, and its %d epochs are %d here: other images or another batch "
            "size; schedules go by the epoch",
            path,
            found.optimizer_steps,
            found.epoch,
            step,
        )


def our_weights(
    path: Path, found: ReferenceCheckpoint, config: PretrainConfig
) -> dict[str, Tensor]:
    """All weights of a distiller with these settings; an error if they do not fit them."""
    if not config.head.shared:
        raise UserError(f"{path} has one head for [CLS] and patches; use head.shared=true")
    plain = config.backbone.model_copy(update={"pretrained": False})
    with torch.device("meta"):
        backbone = build_backbone(
            plain, image_size=config.views.global_size, channels=config.data.channels
        )
        wanted = Student(backbone, config.head).state_dict()
    student = {**found.student}
    student.setdefault(_MASK_TOKEN, torch.zeros(wanted[_MASK_TOKEN].shape))  # DINO has none
    teacher = {**found.teacher, _MASK_TOKEN: student[_MASK_TOKEN]}
    for which, tensors in (("student", student), ("teacher", teacher)):
        _require_fit(path, which, tensors, wanted)
    prototypes = config.head.prototypes
    patch_centre = found.patch_centre
    if patch_centre is None:
        if config.loss.patch_weight > 0:
            raise UserError(
                f"{path} has no centre of patches, as DINO's have none; use loss.patch_weight=0"
            )
        patch_centre = torch.zeros(prototypes)
    for name, centre in (("center", found.cls_centre), ("center2", patch_centre)):
        if centre.shape != (prototypes,):
            raise UserError(
                f"{path} has {name} for {centre.numel()} prototypes, the settings say "
                f"{prototypes}; use head.prototypes={centre.numel()}"
            )
    return {
        **{f"student.{name}": student[name].clone() for name in wanted},
        **{f"teacher.{name}": teacher[name].clone() for name in wanted},
        "cls_centre.value": found.cls_centre.clone(),
        "patch_centre.value": patch_centre.clone(),
    }


def _require_fit(
    path: Path, which: str, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> None:
    """Raise an error that names the first tensor that does not fit, and the setting to change."""
    for name in [*wanted, *tensors]:
        there = tuple(tensors[name].shape) if name in tensors else "nothing"
        here = tuple(wanted[name].shape) if name in wanted else "nothing"
        if there != here:
            settings = (text for start, text in _SETTINGS.items() if name.startswith(start))
            raise UserError(
                f"{path} has {there} as {name_of(their_name(name))} of its {which}, the settings "
                f"want {here}; change {next(settings, 'backbone.name, width or depth')}"
            )


def _step(
    path: Path, found: ReferenceCheckpoint, config: PretrainConfig, steps_per_epoch: int
) -> int:
    """The step of this run that the checkpoint stands at."""
    step = found.epoch * steps_per_epoch
    if found.step is not None and step <= found.step < step + steps_per_epoch:
        step = found.step
    if step > config.schedule.epochs * steps_per_epoch:
        raise UserError(
            f"{path} has {counted(found.epoch, 'epoch')} behind it, more than schedule.epochs="
            f"{config.schedule.epochs}; use schedule.epochs={found.epoch} or more"
        )
    return step
