"""Frozen networks as functions: evaluated, as features, and loaded."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from attmask import distributed
from attmask.agreement import together
from attmask.api.overriding import assignments
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
from attmask.evaluation.features.extractor import FeatureExtractor, Known
from attmask.evaluation.features.store import default_cache
from attmask.evaluation.features.transform import Transform
from attmask.evaluation.loading import channels_of, load_model
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.network_names import names_of
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.requirements import (
    check_crop,
)
from attmask.evaluation.run import measure_all
from attmask.evaluation.task import Task
from attmask.hardware import Precision, choose_device, default_workers
from attmask.models.backbone import Backbone


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
    chosen = find_tasks([tasks] if isinstance(tasks, str | Task) else tasks, assignments(overrides))
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
        networks = Networks(named, lambda model: make_extractor(cache=cache_of(model, cache)))
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


def cache_of(model: FrozenModel, asked: str | Path | None) -> Path:
    """The folder of the feature cache: as asked, with the run, or the user's own."""
    if asked is not None:
        return Path(asked)
    return default_cache() if model.folder is None else model.folder / "features"


def load_backbone(
    path: str | Path, *, network: Literal["teacher", "student", "untrained", "best"] | None = None
) -> Backbone:
    """The backbone of a run or of one of its checkpoints, ready to use.

    `network` is that of a run: by default the teacher, and of a guarded run the best. `path` may be
    anything that `evaluate` accepts: also `RUN@student`, `RUN@untrained`, a weights file (with the
    parameter names of timm, DINO or iBOT) or `timm:NAME`. The attribute `.vit` of the result is a
    plain timm network.
    """
    return load_model(path if network is None else f"{path}@{network}").backbone


def transform(checkpoint: str | Path, *, image_size: int | None = None) -> Transform:
    """The preprocessing of a checkpoint: an image becomes the input that `evaluate` uses.

    `checkpoint` may be anything that `load_backbone` accepts; `image_size` is the side of the
    centre crop (by default the network's own). Call the result with a path, a PIL image or an
    array H x W x C, and stack the outputs to a batch.
    """
    model = load_model(checkpoint)
    check_crop(model, image_size)
    return Transform(image_size or model.image_size, model.data)
