"""All tasks by name: a protocol on a data set, with a version. Add a new task here."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from attmask.errors import UserError
from attmask.evaluation.datasets.annotated import WithBoxes, WithSegments
from attmask.evaluation.datasets.backgrounds import Backgrounds
from attmask.evaluation.datasets.galleries import CUB, SOP, Cars, Folder, InShop
from attmask.evaluation.datasets.labelled import Labelled
from attmask.evaluation.datasets.landmarks import Landmarks
from attmask.evaluation.datasets.masked import Masked
from attmask.evaluation.datasets.objects import WithObjects
from attmask.evaluation.datasets.pictures import Pictures
from attmask.evaluation.datasets.places import Places205
from attmask.evaluation.datasets.sequences import Sequences
from attmask.evaluation.protocols.backgrounds import BackgroundReliance
from attmask.evaluation.protocols.classify import Classify
from attmask.evaluation.protocols.clustering import Clustering
from attmask.evaluation.protocols.detect_cascade import DetectCascade
from attmask.evaluation.protocols.fewshot import FewShot
from attmask.evaluation.protocols.knn import Knn
from attmask.evaluation.protocols.label_free import Quality
from attmask.evaluation.protocols.linear import Linear
from attmask.evaluation.protocols.linear_cached import LinearCached
from attmask.evaluation.protocols.objects import ObjectAttention
from attmask.evaluation.protocols.occlusion import Occlusion
from attmask.evaluation.protocols.recall import Recall
from attmask.evaluation.protocols.retrieval import MULTI_SCALE, Retrieval
from attmask.evaluation.protocols.segment_knn import SegmentKnn
from attmask.evaluation.protocols.segment_linear import SegmentLinear
from attmask.evaluation.protocols.segment_upernet import SegmentUpernet
from attmask.evaluation.protocols.video import VideoSegmentation
from attmask.evaluation.task import Task
from attmask.overrides import SettingLine, assigned, describe, unknown, with_values
from attmask.settings import Config

# "We select the first 20 % of training samples per class": 260 images in file order, not a draw.
TWENTY_PER_CENT = "the first 260 training images per class, the paper's 20 % of ImageNet"

TASKS: tuple[Task[Any], ...] = (
    Task("knn", Knn(), Labelled(), 1, "weighted nearest neighbours"),
    Task("knn-20", Knn(), Labelled(per_class=260), 1, f"knn with {TWENTY_PER_CENT}"),
    Task("fewshot", FewShot(), Labelled(), 1, "k-NN with 1, 5, 10 and 20 images per class"),
    Task("linear", Linear(), Labelled(), 2, "linear classifiers on new random crops in each epoch"),
    Task("linear-20", Linear(), Labelled(per_class=260), 1, f"linear with {TWENTY_PER_CENT}"),
    Task("linear-cached", LinearCached(), Labelled(), 2, "linear classifiers on cached features"),
    Task(
        "linear-places205",
        LinearCached(),
        Places205(),
        1,
        "linear-cached on Places205, its official training and validation lists",
    ),
    Task(
        "classify",
        Classify(),
        Pictures(max_images=None),
        1,
        "accuracy of a fine-tuned network with its classifier",
    ),
    Task("clustering", Clustering(), Labelled(), 1, "k-means, compared with the labels"),
    Task("retrieval-roxford", Retrieval(), Landmarks(name="roxford5k"), 1, "revisited Oxford"),
    Task("retrieval-rparis", Retrieval(), Landmarks(name="rparis6k"), 1, "revisited Paris"),
    Task(
        "retrieval-roxford-512",
        Retrieval(image_size=512, scales=MULTI_SCALE),
        Landmarks(name="roxford5k"),
        1,
        "revisited Oxford at 512 pixels and three scales",
    ),
    Task(
        "retrieval-rparis-512",
        Retrieval(image_size=512, scales=MULTI_SCALE),
        Landmarks(name="rparis6k"),
        1,
        "revisited Paris at 512 pixels and three scales",
    ),
    Task("recall", Recall(), Folder(), 1, "Recall@k on any labelled images"),
    Task("recall-cub", Recall(), CUB(), 1, "CUB-200-2011, classes 101 to 200"),
    Task("recall-cars", Recall(), Cars(), 1, "Cars-196, classes 99 to 196"),
    Task("recall-sop", Recall(ks=(1, 10, 100, 1000)), SOP(), 1, "Stanford Online Products"),
    Task("recall-inshop", Recall(ks=(1, 10, 20, 30)), InShop(), 1, "In-Shop, queries and gallery"),
    Task(
        "backgrounds",
        BackgroundReliance(),
        Backgrounds(),
        2,
        "ImageNet-9: objects on other backgrounds",
    ),
    Task("occlusion", Occlusion(), Labelled(), 2, "accuracy with the most attended patches black"),
    Task("objects", ObjectAttention(), WithObjects(), 1, "attention and masks on known objects"),
    Task(
        "segment-linear",
        SegmentLinear(),
        Masked(),
        1,
        "semantic segmentation by a linear classifier of patches",
    ),
    Task(
        "segment-knn",
        SegmentKnn(),
        Masked(),
        1,
        "semantic segmentation by nearest neighbours of patches",
    ),
    Task(
        "segment-upernet",
        SegmentUpernet(),
        WithSegments(),
        1,
        "semantic segmentation by a fine-tuned network with its UperNet head",
    ),
    Task(
        "detect-cascade",
        DetectCascade(),
        WithBoxes(),
        1,
        "objects and their masks by a fine-tuned network with its cascade",
    ),
    Task(
        "video",
        VideoSegmentation(),
        Sequences(),
        1,
        "DAVIS: objects of the first frame followed through a video",
    ),
    Task(
        "quality",
        Quality(),
        Pictures(),
        1,
        "without labels: effective rank, alignment, prototypes used",
    ),
)


def find_tasks(
    wanted: Sequence[str | Task[Any]], assignments: Sequence[str] = ()
) -> list[Task[Any]]:
    """Look up tasks by name (or take the given ones) and apply `key=value` overrides.

    `setting=value` applies to every task that has the setting, `task.setting=value` to one task.
    """
    known = {task.name: task for task in TASKS}
    chosen: dict[str, Task[Any]] = {}
    for task in wanted:
        if isinstance(task, str) and task not in known:
            raise UserError(unknown("task", task, list(known)))
        found = known[task] if isinstance(task, str) else task
        if chosen.setdefault(found.name, found) != found:
            raise UserError(f"two tasks are called {found.name}; give one of them another name")
    for assignment in assignments:
        key, value = assigned(assignment, example="knn.temperature=0.1")
        targets = {name: own for name, task in chosen.items() if (own := _own(task, key))}
        if not targets:
            known_keys = [f"{n}.{s.key}" for n, task in chosen.items() for s in settings_of(task)]
            raise UserError(unknown("setting", key, known_keys))
        for name, own in targets.items():
            chosen[name] = _with(chosen[name], own, value)
    return list(chosen.values())


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split command-line words into checkpoints and tasks: words that name a task are tasks."""
    known = {task.name for task in TASKS}
    tasks = [word for word in words if word in known]
    checkpoints = [word for word in words if word not in known]
    for word in checkpoints:
        if "/" not in word and not Path(word).exists() and get_close_matches(word, known):
            raise UserError(unknown("task", word, sorted(known)))
    if not tasks:
        last = checkpoints[-1]
        raise UserError(
            unknown("task", last, sorted(known))
            if len(words) > 1
            else (f"no task was given for {last}; `attmask tasks` lists them")
        )
    if not checkpoints:
        raise UserError(f"no checkpoint was given for {', '.join(tasks)}; put a run before it")
    return checkpoints, tasks


def settings_of(task: Task[Any]) -> list[SettingLine]:
    """Every setting of a task with its value, help text and the paper's value."""
    return [line for part in _parts(task) for line in describe(part)]


def _parts(task: Task[Any]) -> tuple[Config, Config]:
    protocol, dataset = task.protocol, task.dataset
    assert isinstance(protocol, Config)
    assert isinstance(dataset, Config)
    return protocol, dataset


def _own(task: Task[Any], key: str) -> str | None:
    """The name of the task's setting that a key refers to, or None."""
    own = key.removeprefix(f"{task.name}.")
    return own if own in [line.key for line in settings_of(task)] else None


def _with(task: Task[Any], key: str, value: object) -> Task[Any]:
    """The task with one setting changed and validated."""
    changed: dict[str, Any] = {
        name: with_values(part, [(key, value)], f"{task.name}.")
        for name, part in zip(("protocol", "dataset"), _parts(task), strict=True)
        if key in [line.key for line in describe(part)]
    }
    return replace(task, **changed)
