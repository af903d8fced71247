"""The network whose attention says what is hidden: a run of ours, a file, or one of timm's."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from attmask import checkpoint
from attmask.data.sources import DataConfig
from attmask.errors import UserError
from attmask.evaluation.subject import Subject
from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.interop import import_backbone, pixels_of

TIMM = "timm:"
_TEACHER = "teacher.backbone."


def open_reference(place: str) -> Subject:
    """The teacher of a run, or an imported backbone; attention is that of the last block."""
    folder = Path(place).absolute()
    for run in (folder, folder.parent.parent):
        if folder.is_dir() and (run / "config.yaml").is_file():
            return _teacher(run, None if run == folder else folder)
    return imported(place, place)


def imported(place: str, name: str) -> Subject:
    """Somebody else's backbone, from a file or from timm, on images of the size it is made for."""
    backbone = import_backbone(place.removeprefix(TIMM)).eval().requires_grad_(False)
    pixels = pixels_of(backbone)
    known = {"mean": pixels.mean, "std": pixels.std} if pixels.mean and pixels.std else {}
    data = DataConfig.model_validate({"channels": backbone.channels, **known})
    return Subject(name, backbone, pixels.image_size, data)


def _teacher(run: Path, step: Path | None) -> Subject:
    """The teacher of a checkpoint, from the parts of its run's config that a backbone needs."""
    found = checkpoint.load(step) if step else checkpoint.load_newest(run / "checkpoints")
    if found is None:
        raise UserError(f"{run} has no checkpoint yet; give a run that was trained for a while")
    try:
        settings: dict[str, Any] = yaml.safe_load((run / "config.yaml").read_text())
        size = int(settings["views"]["global_size"])
        data = DataConfig.model_validate(settings["data"])
        config = BackboneConfig.model_validate({**settings["backbone"], "pretrained": False})
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValidationError) as fault:
        raise UserError(f"{run / 'config.yaml'} is damaged or of another version") from fault
    backbone = build_backbone(config, image_size=size, channels=data.channels)
    tensors = found.tensors["weights"]
    weights = {k.removeprefix(_TEACHER): t for k, t in tensors.items() if k.startswith(_TEACHER)}
    backbone.load_state_dict(weights)
    return Subject(str(step or run), backbone.eval(), size, data)
