"""Export of a pre-training checkpoint in the authors' layout, with all that resumes it."""

from collections.abc import Mapping
from pathlib import Path

import torch

from attmask import atomic, checkpoint
from attmask.checkpoint import OPTIMIZER, WEIGHTS, Checkpoint
from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.kinds import read_config
from attmask.reference_arguments import their_arguments
from attmask.reference_layout import ReferenceCheckpoint, place_of, reference_content

_CHECKPOINTS = "checkpoints"


def write_reference(
    named: str | Path, out: Path, *, is_best: bool = False, stated: Mapping[str, int | str] = {}
) -> Path:
    """Write a run, or one of its step-... folders, as a .pth file in the authors' layout.

    `is_best` says that `named` means the best network of a run, which the layout cannot hold.
    `stated` are entries for our importer; the authors' code reads only its own.
    """
    folder = Path(str(named).removesuffix("@teacher").removesuffix("@best")).absolute()
    run = folder if (folder / "config.yaml").is_file() else folder.parent.parent
    is_step = folder.parent == run / _CHECKPOINTS and folder.is_dir()
    if not (run / "config.yaml").is_file() or not (folder == run or is_step):
        raise UserError(
            f"{named} is not a run or one of its step-... folders; the authors' layout holds "
            "student, teacher, centres and optimizer, which only a pre-training run has"
        )
    config = read_config(run / "config.yaml")
    if not isinstance(config, PretrainConfig):
        raise UserError(
            f"{named} is a fine-tuning run; the authors' layout is that of a pre-training, use "
            "another format"
        )
    if config.adapt.lora_rank is not None:
        raise UserError(
            f"{named} was trained with adapt.lora_rank={config.adapt.lora_rank}, and the authors' "
            "layout has no updates of low rank; use --format timm, hf, onnx or torch, which hold "
            "the merged weights"
        )
    if is_best:
        raise UserError(
            f"{named} is the best network of a guarded run, and the authors' layout holds the "
            f"training as it stands; give {str(named).removesuffix('@best')}@teacher, or use "
            "another format"
        )
    groups = [WEIGHTS, OPTIMIZER]
    saved = (
        checkpoint.load(folder, only=groups)
        if is_step
        else checkpoint.load_newest(run / _CHECKPOINTS, only=groups)
    )
    if saved is None:
        raise UserError(f"{named} has no checkpoint yet; resume its training to write one")
    content = reference_content(as_reference(named, saved, config))
    try:
        with atomic.file(out) as part:
            torch.save({**content, **stated}, part)
    except OSError as fault:
        raise UserError(f"cannot write {out}: {fault.strerror or fault}") from fault
    return out


def as_reference(
    named: str | Path, saved: Checkpoint, config: PretrainConfig
) -> ReferenceCheckpoint:
    """One of our checkpoints as one of the authors'; an error if their network has no such part."""
    weights = saved.tensors[WEIGHTS]
    student, teacher = (
        {k.removeprefix(which): t for k, t in weights.items() if k.startswith(which)}
        for which in ("student.", "teacher.")
    )
    if (other := next((name for name in student if place_of(name) is None), None)) is not None:
        raise UserError(
            f"{named} has {other}, unlike the authors' networks, which are plain ViTs with one "
            "head for [CLS] and patches; use another format"
        )
    steps_per_epoch = max(1, int(saved.info["images"]) // config.train.batch_size)
    return ReferenceCheckpoint(
        student,
        teacher,
        weights["cls_centre.value"],
        weights["patch_centre.value"],
        saved.tensors.get(OPTIMIZER, {}),
        saved.step // steps_per_epoch,
        saved.step,
        their_arguments(config),
        saved.info.get("scaler") or {},
    )
