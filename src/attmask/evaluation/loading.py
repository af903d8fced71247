"""Load a network from a run, one of its checkpoints, a weights file, Hugging Face or timm.

runs/mine   runs/mine@student   runs/mine@untrained   runs/mine@best
runs/mine/checkpoints/step-00001200
weights.pth   weights.pth@positions=size,heads=6   weights.pth@partial=true
a Hugging Face directory   hf-hub:facebook/dinov2-small   timm:vit_small_patch16_224.dino
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import timm
import torch
from pydantic import BaseModel
from torch import Tensor

from attmask import checkpoint
from attmask.adaptation.lora import merged
from attmask.adaptation.start import StartingWeights, blueprint_in, kept_start
from attmask.checkpoint import Checkpoint
from attmask.config import PretrainConfig
from attmask.data.config import DataConfig
from attmask.detection.config import DetectConfig
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel, Prototypes
from attmask.evaluation.network_names import TIMM, Options, Which, split_options, split_which
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.evaluation.showing import Showing
from attmask.finetuning.config import FinetuneConfig
from attmask.kinds import read_config
from attmask.models.backbone import Backbone
from attmask.models.blueprint import Blueprint
from attmask.models.detection.detector import Detector
from attmask.models.heads import Head
from attmask.models.importing.directory import is_directory_of_weights
from attmask.models.importing.hub import HUB
from attmask.models.interop import import_network
from attmask.models.upernet import Segmenter
from attmask.models.weights_file import refuse_not_finite, refuse_unusable
from attmask.networks import build_distiller
from attmask.overrides import checked
from attmask.run_config import RunConfig
from attmask.segmentation.config import SegmentConfig
from attmask.tuning.config import TunedConfig

_WEIGHTS = (".safetensors", ".pth", ".pt", ".bin")
BEST = checkpoint.BEST
_AVERAGED = "ema.module."
_COUNTERS = ".num_batches_tracked"
"""Of batch norms, which nobody reads."""
_KINDS = (
    "a run, one of its step-... folders, a weights file (.safetensors, .pth), a Hugging Face "
    "directory, timm:NAME or hf-hub:OWNER/NAME"
)


def load_model(
    named: str | Path, shown: str | None = None, *, last_block: bool = False
) -> FrozenModel:
    """Load the network that `named` refers to; `shown` is its name in tables.

    Its attention comes from the block that the run uses for masking, or from the last block if
    `last_block` is set.
    """
    text = str(named)
    shown = shown or text
    name, options = split_options(text)
    if name.startswith((TIMM, *HUB)):
        return _imported(name, options, shown)
    if Path(name).suffix in _WEIGHTS and Path(name).is_file():
        return _imported(name, options, shown)
    if is_directory_of_weights(Path(name)):
        return _imported(name, options, shown)
    if options is None:
        path, which = split_which(text)
        if not path.exists() and timm.is_model(text):
            return _imported(text, None, shown)
        return load_run(path, which, shown, last_block=last_block)
    if timm.is_model(name):
        return _imported(name, options, shown)
    raise UserError(
        f"{text} has options after the @, but {name} is neither a weights file, nor a Hugging Face "
        "directory, nor a timm model; only these accept positions=, heads= and partial="
    )


def channels_of(named: str | Path) -> int | None:
    """The channels that a run was trained with, from its config; None if `named` is not a run."""
    config = _config_of(named)
    return None if config is None else config.data.channels


def kind_of(named: str | Path) -> str | None:
    """What a run was trained for, from its config; None if `named` is not a run."""
    config = _config_of(named)
    return None if config is None else config.KIND


def _config_of(named: str | Path) -> RunConfig | None:
    name, options = split_options(str(named))
    if options is not None or name.startswith((TIMM, *HUB)):
        return None
    path = split_which(name)[0].absolute()
    if is_directory_of_weights(path):
        return None
    for run in (path, path.parent.parent):
        if (run / "config.yaml").is_file():
            return read_config(run / "config.yaml")
    return None


def load_run(
    path: Path, which: Which | None = None, shown: str | None = None, *, last_block: bool = False
) -> FrozenModel:
    """Load a network of a run or of one of its checkpoints; by default the best one, where the run
    has chosen one, else the teacher."""
    folder = path.absolute()
    run = folder if (folder / "config.yaml").is_file() else folder.parent.parent
    is_step = folder.is_dir() and folder.parent in (run / "checkpoints", run / BEST)
    if checkpoint.newest(folder / "checkpoints") and not (folder / "config.yaml").exists():
        raise UserError(
            f"{path} has checkpoints, but no config.yaml; restore it, or run "
            f"`attmask resume {path}`, which writes it again"
        )
    if not (run / "config.yaml").is_file() or not (folder == run or is_step):
        raise UserError(f"{path} is not a checkpoint; give {_KINDS}")
    config = read_config(run / "config.yaml")
    if isinstance(config, TunedConfig):
        return _tuned(config, path, run, which or "teacher", shown, is_step=is_step)
    assert isinstance(config, PretrainConfig)
    best = None if is_step else checkpoint.newest(run / BEST)
    if which is None:
        which = "best" if best and config.guard.patience is not None else "teacher"
    if which == "last" or (which == "best" and best is None):
        raise UserError(
            f"{path} is a pre-training run, which has no network {which}; use @teacher, @student "
            "or @untrained, or @best of a run with guard.patience"
        )
    saved = None
    if which == "best" and best is not None:
        saved = checkpoint.load(best, only=["weights"])
    elif which != "untrained":
        saved = _saved(path, folder, run)
    start = _start(config, run) if saved is None else None
    weights = (
        build_distiller(config, start).state_dict() if saved is None else _weights(path, saved)
    )
    weights = merged(weights)
    owner = "student" if which == "student" else "teacher"
    layer = None if last_block else config.masking.layer
    blueprint = Blueprint(
        config=config.backbone,
        image_size=config.views.global_size,
        channels=config.data.channels,
        layer=layer,
    )
    if config.init is not None:  # the network is that of the weights, whatever settings can say
        of_start = start.blueprint if start else blueprint_in(saved.info if saved else {}, run)
        blueprint = of_start.model_copy(update={"layer": layer})
    try:
        backbone = blueprint.build(_below(weights, f"{owner}.backbone."), str(path))
        prototypes = None if which == "student" else _prototypes(config, weights, backbone.width)
    except (RuntimeError, KeyError) as fault:
        raise UserError(
            f"the weights of {path} do not fit {run / 'config.yaml'}; restore the original "
            "config.yaml of the run"
        ) from fault
    return FrozenModel(
        name=shown or path.name,
        backbone=backbone.eval().requires_grad_(False),
        image_size=config.views.global_size,
        data=config.data,
        prototypes=prototypes,
        folder=run,
        origin={"weights": which, **_progress(saved, config)},
        blueprint=blueprint,
    )


def _start(config: PretrainConfig, run: Path) -> StartingWeights | None:
    """The weights that a run started from; None if they were drawn."""
    if config.init is None:
        return None
    if (kept := kept_start(run)) is None:
        raise UserError(f"{run} has no copy of the weights it starts from; resume it to write one")
    return kept


def _tuned(
    config: TunedConfig, path: Path, run: Path, which: Which, shown: str | None, *, is_step: bool
) -> FrozenModel:
    """The network of a fine-tuning run with its head: the best one, or the last one."""
    if which in ("student", "untrained"):
        raise UserError(
            f"{path} is a fine-tuning run, which has no network {which}; use @best or @last, or "
            f"the checkpoint that it started from, {config.network.start}"
        )
    best = None if which == "last" or is_step else checkpoint.newest(run / BEST)
    saved = (
        _saved(path, path.absolute() if is_step else run, run)
        if best is None
        else checkpoint.load(best, only=["weights"])
    )
    weights = _weights(path, saved)
    averaged = _below(weights, _AVERAGED)
    own = averaged or _below(weights, "network.")
    try:
        known = _Known.model_validate(saved.info)
        backbone = known.blueprint.build(_below(own, "backbone."), str(path))
        model = FrozenModel(
            name=shown or path.name,
            backbone=backbone.eval().requires_grad_(False),
            image_size=config.image_size or known.blueprint.image_size,
            data=config.data,
            folder=run,
            origin={"weights": "last" if best is None else "best", **_progress(saved, config)},
            blueprint=known.blueprint,
        )
        return _with_head(model, config, own, known)
    except (RuntimeError, KeyError, ValueError) as fault:
        raise UserError(
            f"the weights of {path} do not fit what its checkpoint says of them; use another "
            "checkpoint"
        ) from fault


def _with_head(
    model: FrozenModel, config: TunedConfig, weights: Mapping[str, Tensor], known: "_Known"
) -> FrozenModel:
    """A network with the head that was trained together with its backbone."""
    if isinstance(config, FinetuneConfig):
        return replace(model, classifier=_classifier(model, config, weights, known))
    names, network = tuple(known.classes), _with_weights(model.backbone, config, weights, known)
    if isinstance(network, Segmenter):
        assert isinstance(config, SegmentConfig)
        showing = Showing(config.data, config.augment.long_short(model.image_size))
        values = tuple(known.values)
        segmenter = TrainedSegmenter(network, names, values, showing, config.inference)
        return replace(model, segmenter=segmenter)
    assert isinstance(config, DetectConfig)
    showing = Showing(config.data, (config.shown.long_side, config.shown.short_side))
    ids = tuple(known.category_ids)
    detector = TrainedDetector(network, names, ids, showing, known.has_masks)
    return replace(model, detector=detector)


def _with_weights(
    backbone: Backbone, config: TunedConfig, weights: Mapping[str, Tensor], known: "_Known"
) -> Segmenter | Detector:
    """The network of dense prediction around a backbone."""
    network: Segmenter | Detector
    if isinstance(config, SegmentConfig):
        network = Segmenter(backbone, len(known.classes), config.head)
    else:
        assert isinstance(config, DetectConfig)
        network = Detector(backbone, len(known.classes), config.head)
    network.load_state_dict(dict(weights))
    return network.eval().requires_grad_(False)


def _classifier(
    model: FrozenModel, config: FinetuneConfig, weights: Mapping[str, Tensor], known: "_Known"
) -> LinearClassifier:
    weight, bias = weights["head.weight"], weights["head.bias"]
    if weight.shape[0] != len(known.classes) or bias.shape != weight.shape[:1]:
        raise KeyError("head.weight")
    return LinearClassifier(
        weight,
        bias,
        tuple(known.classes),
        Embedding(token=config.network.token, norm_gap=True),
        model.image_size,
        model.digest,
        multi_label=known.multi_label,
    )


class _Known(BaseModel):
    """What a checkpoint of a fine-tuning says of its network."""

    classes: list[str]
    blueprint: Blueprint
    multi_label: bool = False
    values: list[int] = []
    """Of a segmenter: the value of each class in mask files."""
    category_ids: list[int] = []
    """Of a detector: the id of each class in annotation files."""
    has_masks: bool = True
    """Of a detector: whether it has learned masks."""


def _progress(saved: Checkpoint | None, config: RunConfig) -> dict[str, Any]:
    """The training step of a checkpoint, and the epoch if the number of images is known."""
    if saved is None:
        return {"step": 0, "epoch": 0.0}
    images, stated = saved.info.get("images"), saved.info.get("steps_per_epoch")
    if isinstance(stated, int) and stated > 0:
        return {"step": saved.step, "epoch": round(saved.step / stated, 2)}
    steps_per_epoch = images // config.train.batch_size if isinstance(images, int) else 0
    if not steps_per_epoch:
        return {"step": saved.step}
    return {"step": saved.step, "epoch": round(saved.step / steps_per_epoch, 2)}


def _prototypes(config: PretrainConfig, weights: Mapping[str, Tensor], width: int) -> Prototypes:
    """The teacher's prototypes; a student has no centre and no temperature of its own."""
    with torch.device("meta"):
        head = Head(width, config.head)
    head.load_state_dict(_below(weights, "teacher.head."), assign=True)
    centre = weights["cls_centre.value"]
    if centre.shape != (config.head.prototypes,):
        raise KeyError("cls_centre.value")
    return Prototypes(
        head.eval().requires_grad_(False),
        centre,
        config.schedule.cls_temperature[-1],
        config.loss.centring,
    )


def _saved(path: Path, folder: Path, run: Path) -> Checkpoint:
    if run != folder:
        return checkpoint.load(folder, only=["weights"])
    found = checkpoint.load_newest(run / "checkpoints", only=["weights"])
    if found is None:
        raise UserError(f"{path} has no checkpoint yet; resume its training to write one")
    return found


def _weights(path: Path, saved: Checkpoint) -> dict[str, Tensor]:
    """The weights of a checkpoint in fp32, whoever wrote it."""
    weights = {
        name: tensor
        for name, tensor in saved.tensors.get("weights", {}).items()
        if not name.endswith(_COUNTERS)
    }
    refuse_unusable(path, weights)
    refuse_not_finite(path, weights)
    return {name: tensor.float() for name, tensor in weights.items()}


def _below(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): t for k, t in weights.items() if k.startswith(prefix)}


def _imported(name: str, options: Options | None, shown: str) -> FrozenModel:
    """A backbone from elsewhere, with the input size it was trained with."""
    name = name.removeprefix(TIMM)
    options = options or Options()
    made = import_network(
        name, heads=options.heads, positions=options.positions, partial=options.partial
    )
    backbone, pixels = made.backbone.eval().requires_grad_(False), made.pixels
    known = {"mean": pixels.mean, "std": pixels.std} if pixels.mean and pixels.std else {}
    data = checked(DataConfig, {"channels": backbone.channels, **known}, f"{name}: data.")
    blueprint = Blueprint(
        name=made.timm_name,
        heads=backbone.heads[0],
        eps=made.eps,
        positions=backbone.positions,
        image_size=pixels.image_size,
        channels=backbone.channels,
    )
    kind = "file" if made.timm_name is None else "timm"
    origin = {"weights": kind, **made.detection.describe()}
    return FrozenModel(shown, backbone, pixels.image_size, data, origin=origin, blueprint=blueprint)
