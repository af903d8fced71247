"""The commands of the command line as functions."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from attmask import distributed
from attmask.agreement import together
from attmask.audit.audit import Audit
from attmask.audit.inspect import MAX_IMAGES, inspect_images
from attmask.config import PretrainConfig
from attmask.data.sources import images_path, open_images
from attmask.data.stores.axes import FEW_CHANNELS
from attmask.data.together import open_together
from attmask.embedding.embedder import EmbeddedBatch, Tokens, make_embedder, readout_of
from attmask.embedding.file import EmbeddingFile, check_out, parts_folder
from attmask.embedding.formats import find_format
from attmask.embedding.images import SplitName, image_rows
from attmask.embedding.joined import DType
from attmask.embedding.parts import Parts
from attmask.embedding.write import write_features
from attmask.errors import UserError
from attmask.evaluation.catalog import find_tasks
from attmask.evaluation.datasets.annotated import WithSegments
from attmask.evaluation.datasets.labelled import Labelled
from attmask.evaluation.datasets.masked import Masked
from attmask.evaluation.datasets.pictures import Pictures
from attmask.evaluation.detection.writing import write_detections
from attmask.evaluation.features.extractor import FeatureExtractor, Known
from attmask.evaluation.features.store import default_cache
from attmask.evaluation.features.transform import Transform
from attmask.evaluation.loading import channels_of, load_model, names_of
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.predictions import Choice, Predictions, pictures_of
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.requirements import (
    check_crop,
    classifier_of,
    detector_of,
    segmenter_of,
)
from attmask.evaluation.run import measure_all
from attmask.evaluation.segmentation.writing import write_masks
from attmask.evaluation.showing import Showing
from attmask.evaluation.task import Task
from attmask.evaluation.whole_images import WholeImages, Written, check_folder
from attmask.hardware import Precision, choose_device, default_workers
from attmask.heartbeat import Heartbeat
from attmask.kinds import KINDS
from attmask.loop import Outcome
from attmask.models.backbone import Backbone
from attmask.planning.devices import find_device
from attmask.planning.planner import UTILISATION, plan_run
from attmask.planning.record import RunPlan
from attmask.pretraining import pretrain_together
from attmask.recipe import load_recipe
from attmask.run import (
    check_settings,
    default_folder,
    origin_of,
    saved_config,
)
from attmask.run_config import override
from attmask.run_status import Status, read_status
from attmask.trainings import alone_in, tune_together, tuning_recipe
from attmask.tuning.complete import complete
from attmask.tuning.config import TunedConfig
from attmask.tuning.results import Finetuned

log = logging.getLogger(__name__)


def pretrain(
    data: str | Path,
    *,
    recipe: str | Path | PretrainConfig | None = None,
    out: str | Path,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    extend: bool = False,
) -> Outcome:
    """Pre-train on a folder of images; an existing run in `out` is resumed.

    `recipe` is a name, a YAML file or a config; the default is `small` with a GPU, else `cpu`.
    `overrides` are `key=value` strings or a mapping, e.g. {"schedule.epochs": 50}. With `extend`,
    an existing run may be given more epochs: its schedules are then those of the longer training.
    """
    recipe = recipe or default_recipe()
    named = "own config" if isinstance(recipe, PretrainConfig) else f"recipe {recipe}"
    return _train(configure(recipe, overrides), images_path(data), Path(out), named, extend)


def resume(
    run: str | Path,
    *,
    data: str | Path | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    extend: bool = False,
) -> Outcome:
    """Resume a run with its own settings and images; a finished run is left as it is.

    `data` is the path of the images if they have moved; `overrides` may change operational
    settings only, e.g. {"train.workers": 4}, and with `extend` the number of epochs.
    """
    folder = Path(run)
    config = saved_config(folder, KINDS)
    asked = override(config, _assignments(overrides))
    check_settings(folder, config, asked, extend=extend)
    path = origin_of(folder) if data is None else images_path(data)
    if isinstance(asked, TunedConfig):
        tuning = partial(tune_together, asked, path, folder, "resuming", extend=extend)
        return alone_in(asked, folder, tuning).outcome
    assert isinstance(asked, PretrainConfig)
    return _train(asked, path, folder, "resuming", extend)


def finetune(
    checkpoint: str | Path,
    data: str | Path,
    *,
    recipe: str | Path | TunedConfig = "own",
    out: str | Path,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    extend: bool = False,
) -> Finetuned:
    """Fine-tune a checkpoint on annotated images; an existing run in `out` is resumed.

    `checkpoint` may be anything that `evaluate` accepts, `recipe` is a name (`attmask recipes`), a
    YAML file or a config. It decides what is learned: classes of images (`own`, `cifar10`, ...), of
    pixels (`segment-own`, ...) or objects (`detect-own`, ...). `out` then works as a checkpoint of
    `evaluate`, `predict` and `load_backbone`.
    """
    given = recipe if isinstance(recipe, TunedConfig) else None
    named = "own config" if given else f"recipe {recipe}"
    base = given or tuning_recipe(str(recipe))
    folder, path, changes = Path(out), images_path(data), _assignments(overrides)

    def train(heartbeat: Heartbeat) -> Finetuned:
        with together():
            config = complete(base, checkpoint, folder, changes)
        return tune_together(config, path, folder, named, heartbeat, extend=extend)

    return alone_in(override(base, changes), folder, train)


def default_finetune_out(
    checkpoint: str | Path,
    data: str | Path,
    recipe: str | Path,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> Path:
    """The default folder of a fine-tuning: named after data, recipe, checkpoint and settings."""
    base = tuning_recipe(recipe)
    start = re.sub(r"[^\w.-]+", "-", Path(str(checkpoint)).name)
    named = f"{Path(recipe).stem}-{start}"
    return default_folder(Path(data), named, base, override(base, _assignments(overrides)))


def status(run: str | Path) -> Status:
    """Where a run stands and whether it is well, from any process or machine that sees its folder.

    `.to_dict()` of the result gives JSON.
    """
    return read_status(Path(run))


def default_out(
    data: str | Path, recipe: str | Path, overrides: Sequence[str] | Mapping[str, Any] = ()
) -> Path:
    """The default folder of a run: named after data, recipe and changed settings."""
    return default_folder(
        Path(data), str(recipe), load_recipe(recipe), configure(recipe, overrides)
    )


def _train(config: PretrainConfig, data: Path, out: Path, named: str, extend: bool) -> Outcome:
    """Pre-train with all processes that were launched together."""
    training = partial(pretrain_together, config, data, out, named, extend=extend)
    return alone_in(config, out, training)


def inspect(
    data: str | Path, *, recipe: str | Path | None = None, max_images: int = MAX_IMAGES
) -> Audit:
    """Inspect images before training: problems, recommended settings, time and memory.

    At most `max_images`, evenly spread, are examined; `.to_dict()` of the result gives JSON.
    """
    named = None if recipe is None else str(recipe)
    return inspect_images(images_path(data), recipe=named, max_images=max_images)


def plan(
    recipe: str | Path | PretrainConfig,
    *,
    device: str,
    processes: int = 1,
    images: int | None = None,
    utilisation: float = UTILISATION,
    core_images_per_second: float | None = None,
    memory_gb: float | None = None,
    tflops: float | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> RunPlan:
    """Plan a run before anything runs: memory, operations, time, data rate, checkpoint.

    `device` is a name of `attmask plan --help`, or any with `memory_gb` and `tflops`. `images` are
    those of the data set (default: ImageNet-1k), `utilisation` the share of the device's peak speed
    that is used. `.to_dict()` of the result gives JSON.
    """
    return plan_run(
        configure(recipe, overrides),
        find_device(device, processes=processes, memory_gb=memory_gb, tflops=tflops),
        recipe="own config" if isinstance(recipe, PretrainConfig) else str(recipe),
        processes=processes,
        images=images,
        utilisation=utilisation,
        core_images_per_second=core_images_per_second,
    )


def configure(
    recipe: str | Path | PretrainConfig | None = None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
) -> PretrainConfig:
    """A recipe with overrides on top."""
    if recipe is None:
        recipe = default_recipe()
    config = recipe if isinstance(recipe, PretrainConfig) else load_recipe(recipe)
    return override(config, _assignments(overrides))


def default_recipe() -> str:
    """The default recipe for this machine."""
    return "small" if torch.accelerator.is_available() else "cpu"


def evaluate(
    checkpoints: str | Path | Sequence[str | Path],
    tasks: str | Task[Any] | Sequence[str | Task[Any]],
    *,
    data: str | Path | Mapping[str, str | Path],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    cache: str | Path | None = None,
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    batch_size: int = 64,
    workers: int | None = None,
    seed: int = 0,
) -> list[Card]:
    """Evaluate frozen backbones on tasks, by name (`attmask tasks`) or your own; returns the cards.

    A checkpoint is a run, one of its step-... folders, a weights file or `timm:NAME`. `RUN@student`
    is the student of a run, `RUN@untrained` its network before training; `FILE@positions=size` and
    `FILE@heads=12` set what a weights file may not state. `data` is the path of the images, or a
    mapping from task to path. All requirements are checked before the first task; if a task fails
    later, `UnfinishedError` is raised at the end with the cards of the others.
    """
    named = [checkpoints] if isinstance(checkpoints, str | Path) else list(checkpoints)
    if not named:
        raise UserError("no checkpoint was given; give a run, a weights file or timm:NAME")
    chosen = find_tasks(
        [tasks] if isinstance(tasks, str | Task) else tasks, _assignments(overrides)
    )
    chosen = [_for_channels(task, channels_of(named[0])) for task in chosen]
    paths = {task.name: _data_path(data, task.name) for task in chosen}
    chosen_device = choose_device(device)
    with distributed.processes(chosen_device):
        own_device = distributed.own_device(chosen_device)
        make_extractor = partial(
            FeatureExtractor,
            device=own_device,
            precision=Precision.choose(precision, own_device),
            batch_size=batch_size,
            workers=default_workers() if workers is None else workers,
            seed=seed,
            known=Known(),
        )
        networks = Networks(named, lambda model: make_extractor(cache=_cache_of(model, cache)))
        return measure_all(chosen, networks, paths)


def embed(
    checkpoint: str | Path,
    images: str | Path,
    *,
    tokens: Tokens = "cls",
    blocks: int = 1,
    norm_gap: bool = False,
    image_size: int | None = None,
    split: SplitName = "all",
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    batch_size: int = 64,
    workers: int | None = None,
) -> Iterator[EmbeddedBatch]:
    """Yield the features of any number of images, batch by batch, with names and labels.

    `checkpoint` may be anything that `evaluate` accepts, `images` anything that `pretrain` accepts.
    `tokens` are `cls`, `gap` (the mean of the patches), `cls+gap` or `patches` (a grid of patch
    tokens per image), of the last `blocks` blocks, concatenated. Images are shown as in `evaluate`:
    their centre, `image_size` pixels wide. In a process group, each process gets its share.
    """
    model = load_model(checkpoint)
    found = open_images(images, channels=model.data.channels)
    return make_embedder(
        model,
        image_rows(found, images_path(images), split),
        choose_device(device),
        readout=readout_of(tokens, blocks, norm_gap=norm_gap),
        image_size=image_size,
        precision=precision,
        batch_size=batch_size,
        workers=workers,
    ).batches()


def write_embeddings(
    checkpoint: str | Path,
    images: str | Path,
    *,
    out: str | Path,
    tokens: Tokens = "cls",
    blocks: int = 1,
    norm_gap: bool = False,
    image_size: int | None = None,
    split: SplitName = "all",
    dtype: DType = "float32",
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    batch_size: int = 64,
    workers: int | None = None,
) -> EmbeddingFile:
    """Write the features of any number of images to a .npy, .parquet or .safetensors file.

    The arguments are those of `embed`; `dtype` is the number format in the file. A call that was
    interrupted goes on where it was. With several processes, all of them call this.
    """
    file, path = Path(out), images_path(images)
    check_out(file, path)
    form = find_format(file, dtype)
    chosen_device, parts = choose_device(device), Parts(parts_folder(file))
    with parts.without_a_lone_index(), distributed.processes(chosen_device):
        with together():
            model = load_model(checkpoint)
        found = open_together(path, index=parts.folder, channels=model.data.channels)
        with together():
            embedder = make_embedder(
                model,
                image_rows(found, path, split),
                distributed.own_device(chosen_device),
                readout=readout_of(tokens, blocks, norm_gap=norm_gap),
                image_size=image_size,
                precision=precision,
                batch_size=batch_size,
                workers=workers,
            )
        return write_features(embedder, file, form, dtype)


class Networks:
    """The networks of several checkpoints; one at a time is in memory."""

    def __init__(
        self, named: Sequence[str | Path], extractor_for: Callable[[FrozenModel], FeatureExtractor]
    ) -> None:
        self.named, self.extractor_for = named, extractor_for
        self._only: FrozenModel | None = None

    def __iter__(self) -> Iterator[tuple[FrozenModel, FeatureExtractor]]:
        """Load each network in turn; a single network is loaded only once."""
        for name, shown in zip(self.named, names_of(self.named), strict=True):
            model = self._only or load_model(name, shown)
            if len(self.named) == 1:
                self._only = model
            yield model, self.extractor_for(model)


def _for_channels(task: Task[Any], channels: int | None) -> Task[Any]:
    """Read arrays of an ambiguous shape with the channels the network was trained on."""
    dataset = task.dataset
    if (
        not isinstance(dataset, Labelled | Pictures | Masked | WithSegments)
        or dataset.channels is not None
    ):
        return task
    if channels is None or channels <= FEW_CHANNELS:  # the shape is not ambiguous
        return task
    return replace(task, dataset=dataset.model_copy(update={"channels": channels}))


def _data_path(data: str | Path | Mapping[str, str | Path], task: str) -> Path:
    if not isinstance(data, Mapping):
        return images_path(data)
    if task not in data:
        raise UserError(f"no images were given for the task {task}; add --data {task}=DIR")
    return images_path(data[task])


def _cache_of(model: FrozenModel, asked: str | Path | None) -> Path:
    if asked is not None:
        return Path(asked)
    return default_cache() if model.folder is None else model.folder / "features"


def predict(
    checkpoint: str | Path,
    images: str | Path,
    *,
    classifier: str | Path | None = None,
    split: Literal["train", "val", "test"] | None = None,
    top: int | None = None,
    threshold: float | None = None,
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    batch_size: int = 64,
    workers: int | None = None,
) -> Predictions:
    """Classify images with a fine-tuned network; iterate over the result for one record per image.

    `images` is a picture or any images that `pretrain` reads, `split` one split of them (default:
    all). A record has the `top` most probable classes (default: 1); of a multi-label classifier it
    has all classes from the probability `threshold` on (default: 0.5). `classifier` is a file that
    the task `linear` wrote, for a network that was not fine-tuned.
    """
    model = load_model(checkpoint)
    known = classifier_of(model, None if classifier is None else Path(classifier))
    chosen_device = choose_device(device)
    own_device = distributed.own_device(chosen_device)
    return Predictions(
        model,
        known,
        pictures_of(images_path(images), split, model.data.channels),
        Choice.of(known, top, threshold),
        FeatureExtractor(
            device=own_device,
            precision=Precision.choose(precision, own_device),
            cache=_cache_of(model, None),  # predictions are not kept
            batch_size=batch_size,
            workers=default_workers() if workers is None else workers,
        ),
        chosen_device,
    )


def segment(
    checkpoint: str | Path,
    images: str | Path,
    *,
    out: str | Path,
    split: Literal["train", "val", "test"] | None = None,
    overlays: bool = True,
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    workers: int | None = None,
) -> Written:
    """Write the class of each pixel of images, with a network that was trained to segment.

    `out` gets a mask for each image, whose values are those of the masks that were trained on, a
    table of the classes and, with `overlays`, pictures to look at. `images` is a picture or any
    images that `pretrain` reads. With several processes, all of them call this.
    """
    folder = Path(out)
    check_folder(folder, images_path(images))
    chosen_device = choose_device(device)
    with distributed.processes(chosen_device):
        with together():
            model = load_model(checkpoint)
            segmenter = segmenter_of(model)
            shown = _whole_images(model, images, split, segmenter.showing, overlays, workers)
        own_device = distributed.own_device(chosen_device)
        segmenter.network.to(own_device)
        autocast = Precision.choose(precision, own_device).autocast
        return write_masks(segmenter, shown, folder, autocast)


def detect(
    checkpoint: str | Path,
    images: str | Path,
    *,
    out: str | Path,
    threshold: float | None = None,
    split: Literal["train", "val", "test"] | None = None,
    overlays: bool = True,
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    workers: int | None = None,
) -> Written:
    """Write the objects in images, with a network that was trained to detect.

    `out` gets detections.json, a data set in COCO's format whose annotations have a score, and,
    with `overlays`, pictures to look at. Detections have a score of at least `threshold`; without
    one, all are written (from 0.05 on, as the network gives them) and those from 0.5 on are drawn.
    """
    folder = Path(out)
    check_folder(folder, images_path(images))
    chosen_device = choose_device(device)
    with distributed.processes(chosen_device):
        with together():
            model = load_model(checkpoint)
            detector = detector_of(model)
            shown = _whole_images(model, images, split, detector.showing, overlays, workers)
        own_device = distributed.own_device(chosen_device)
        detector.network.to(own_device)
        autocast = Precision.choose(precision, own_device).autocast
        return write_detections(detector, shown, folder, autocast, threshold=threshold)


def _whole_images(
    model: FrozenModel,
    images: str | Path,
    split: str | None,
    showing: Showing,
    overlays: bool,
    workers: int | None,
) -> WholeImages:
    sources = pictures_of(images_path(images), split, model.data.channels)
    return WholeImages(
        sources, showing, default_workers() if workers is None else workers, overlays
    )


def load_backbone(
    path: str | Path, *, network: Literal["teacher", "student", "untrained"] = "teacher"
) -> Backbone:
    """The backbone of a run or of one of its checkpoints, ready to use; by default the teacher's.

    `path` may be anything that `evaluate` accepts: also `RUN@student`, `RUN@untrained`, a weights
    file (with the parameter names of timm, DINO or iBOT) or `timm:NAME`. The attribute `.vit` of
    the result is a plain timm network.
    """
    return load_model(path if network == "teacher" else f"{path}@{network}").backbone


def transform(checkpoint: str | Path, *, image_size: int | None = None) -> Transform:
    """The preprocessing of a checkpoint: an image becomes the input that `evaluate` uses.

    `checkpoint` may be anything that `load_backbone` accepts; `image_size` is the side of the
    centre crop (by default the network's own). Call the result with a path, a PIL image or an
    array H x W x C, and stack the outputs to a batch.
    """
    model = load_model(checkpoint)
    check_crop(model, image_size)
    return Transform(image_size or model.image_size, model.data)


def _assignments(overrides: Sequence[str] | Mapping[str, Any]) -> Sequence[str]:
    """Overrides as `key=value` strings."""
    if isinstance(overrides, Mapping):
        return [f"{key}={_as_yaml(value)}" for key, value in overrides.items()]
    return overrides


def _as_yaml(value: Any) -> str:
    """A Python value as YAML for an override."""
    if value is None:
        return "null"
    return str(list(value) if isinstance(value, tuple) else value)
