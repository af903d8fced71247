"""Keys are a promise: every task has the same ones from version to version, and so has the log."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from attmask.api import evaluate, pretrain
from attmask.data.synthetic import CLASSES, write_folder
from attmask.evaluation.catalog import TASKS, find_tasks
from attmask.evaluation.datasets.annotated import WithBoxes, WithSegments
from attmask.evaluation.datasets.backgrounds import VARIANTS
from attmask.evaluation.datasets.galleries import Folder
from attmask.evaluation.datasets.labelled import Labelled
from attmask.evaluation.datasets.masked import Masked
from attmask.evaluation.datasets.objects import WithObjects
from attmask.evaluation.datasets.pictures import Pictures
from attmask.evaluation.datasets.sequences import Sequences
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.loading import load_model
from attmask.evaluation.protocols.backgrounds import BackgroundReliance
from attmask.evaluation.protocols.classify import Classify
from attmask.evaluation.protocols.detect_cascade import DetectCascade
from attmask.evaluation.protocols.label_free import Quality
from attmask.evaluation.protocols.objects import ObjectAttention
from attmask.evaluation.protocols.recall import Recall
from attmask.evaluation.protocols.retrieval import Retrieval
from attmask.evaluation.protocols.segment_knn import SegmentKnn
from attmask.evaluation.protocols.segment_linear import SegmentLinear
from attmask.evaluation.protocols.segment_upernet import SegmentUpernet
from attmask.evaluation.protocols.video import VideoSegmentation
from attmask.evaluation.reporting.old_card import metrics_of_numbers
from attmask.evaluation.task import Measures
from attmask.monitor import read_metrics
from tests.dense_runs import detect_run, segment_run, write_boxed, write_masked
from tests.evaluation.models import extractor_in, tiny_model, with_classifier
from tests.evaluation.protocols.test_backgrounds import published
from tests.evaluation.protocols.test_retrieval import write_landmarks
from tests.evaluation.videos import write_davis
from tests.runs import SHORT

STRATEGIES = ("high", "hint", "low", "random", "block")
SEGMENTATION = ("miou", "aacc", "macc")

# Every key with the name that its number had in cards of version 1.
KNN = {
    "knn.top1": "top-1",
    "knn.top5": "top-5",
    "knn.top1@10": "top-1, k=10",
    "knn.top1@100": "top-1, k=100",
    "knn.top1@200": "top-1, k=200",
}
PROBE = {
    "top1": "top-1, best epoch",
    "top1_last": "top-1, last epoch",
    "top5": "top-5, best epoch",
    "top5_last": "top-5, last epoch",
    "rate": "rate",
    "top1_paper": "top-1, paper's rate, best epoch",
    "top1_paper_last": "top-1, paper's rate, last epoch",
}
RETRIEVAL = {
    "retrieval.medium_map": "medium mAP",
    "retrieval.hard_map": "hard mAP",
    "retrieval.easy_map": "easy mAP",
    "retrieval.medium_precision@1": "medium mP@1",
    "retrieval.medium_precision@5": "medium mP@5",
    "retrieval.medium_precision@10": "medium mP@10",
    "retrieval.hard_precision@1": "hard mP@1",
    "retrieval.hard_precision@5": "hard mP@5",
    "retrieval.hard_precision@10": "hard mP@10",
    "retrieval.easy_precision@1": "easy mP@1",
    "retrieval.easy_precision@5": "easy mP@5",
    "retrieval.easy_precision@10": "easy mP@10",
}


def recall(*ks: int) -> dict[str, str]:
    at_k = {f"recall.recall@{k}": f"recall@{k}" for k in ks}
    return {**at_k, "recall.r_precision": "R-precision", "recall.map_at_r": "MAP@R"}


KEYS: Mapping[str, Mapping[str, str]] = {
    "knn": KNN,
    "knn-20": KNN,
    "fewshot": {
        "fewshot.top1@1": "1 shot",
        "fewshot.top1@5": "5 shots",
        "fewshot.top1@10": "10 shots",
        "fewshot.top1@20": "20 shots",
    },
    "linear": {f"linear.{measure}": name for measure, name in PROBE.items()},
    "linear-20": {f"linear.{measure}": name for measure, name in PROBE.items()},
    "linear-cached": {f"linear_cached.{measure}": name for measure, name in PROBE.items()},
    "linear-places205": {f"linear_cached.{measure}": name for measure, name in PROBE.items()},
    "classify": {"classify.top1": "", "classify.top5": "", "classify.per_class": ""},
    "clustering": {
        "clustering.nmi": "NMI",
        "clustering.ari": "ARI",
        "clustering.accuracy": "cluster accuracy",
    },
    "retrieval-roxford": RETRIEVAL,
    "retrieval-rparis": RETRIEVAL,
    "retrieval-roxford-512": RETRIEVAL,
    "retrieval-rparis-512": RETRIEVAL,
    "recall": recall(1, 2, 4, 8),
    "recall-cub": recall(1, 2, 4, 8),
    "recall-cars": recall(1, 2, 4, 8),
    "recall-sop": recall(1, 10, 100, 1000),
    "recall-inshop": recall(1, 10, 20, 30),
    "backgrounds": {
        "backgrounds.original": "original",
        "backgrounds.mixed_same": "mixed same",
        "backgrounds.mixed_rand": "mixed random",
        "backgrounds.mixed_next": "mixed next",
        "backgrounds.no_fg": "no foreground",
        "backgrounds.only_fg": "only foreground",
        "backgrounds.only_bg_b": "only background (box)",
        "backgrounds.only_bg_t": "only background (tiled)",
        "backgrounds.gap": "background gap",
    },
    "occlusion": {
        "occlusion.top1": "mean over ratios",
        "occlusion.top1@0": "top-1 at 0",
        "occlusion.top1@0.1": "top-1 at 0.1",
        "occlusion.top1@0.2": "top-1 at 0.2",
        "occlusion.top1@0.3": "top-1 at 0.3",
        "occlusion.top1@0.4": "top-1 at 0.4",
        "occlusion.top1@0.5": "top-1 at 0.5",
        "occlusion.top1@0.6": "top-1 at 0.6",
        "occlusion.top1@0.7": "top-1 at 0.7",
    },
    "objects": {
        "objects.attention": "attention on the object",
        "objects.area": "area of the object",
        "objects.lift": "attention / area",
        **{f"objects.hidden_{name}": f"object hidden by {name}" for name in STRATEGIES},
        **{f"objects.patches_{name}": f"patches hidden by {name}" for name in STRATEGIES},
        "objects.images": "",
    },
    "segment-linear": {f"segment_linear.{measure}": "" for measure in SEGMENTATION},
    "segment-knn": {f"segment_knn.{measure}": "" for measure in SEGMENTATION},
    "segment-upernet": {f"segment.{measure}": "" for measure in SEGMENTATION},
    # All objects of the images are small, so the others have no measure.
    "detect-cascade": {
        f"detect.{of}_{measure}": ""
        for of in ("box", "mask")
        for measure in ("ap", "ap50", "ap75", "small")
    },
    "video": {
        "video.j_and_f": "",
        **{f"video.{of}_{name}": "" for of in "jf" for name in ("mean", "recall", "decay")},
        "video.objects": "",
    },
    "quality": {
        "label_free.rank": "rank",
        "label_free.rank_share": "rank, per cent of width",
        "label_free.alignment": "alignment",
        "label_free.uniformity": "uniformity",
        "label_free.entropy": "assignment entropy",
        "label_free.used": "prototypes used",
        "label_free.dead": "dead prototypes, per cent",
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def extractor(folder: Path) -> FeatureExtractor:
    return extractor_in(folder)


@pytest.fixture(scope="module")
def opened(folder: Path) -> Callable[[object], Any]:
    """A small data set for any protocol, opened when the first asks for it."""
    root = folder / "scenes"
    write_folder(root, train=220, val=20, size=32, seed=0)
    kinds: dict[type, Callable[[], Any]] = {
        Recall: lambda: Folder().open(root),
        Retrieval: lambda: write_landmarks(folder / "landmarks"),
        BackgroundReliance: lambda: published(
            folder / "in9", dict.fromkeys(VARIANTS.values(), 1), train=2
        ),
        ObjectAttention: lambda: WithObjects().open(root),
        SegmentLinear: lambda: Masked(ignored=()).open(root),
        SegmentKnn: lambda: Masked(ignored=()).open(root),
        SegmentUpernet: lambda: WithSegments().open(write_masked(folder / "masked")),
        DetectCascade: lambda: WithBoxes().open(write_boxed(folder / "boxed")),
        Quality: lambda: Pictures().open(root),
        Classify: lambda: Pictures(max_images=None).open(root),
        VideoSegmentation: lambda: Sequences().open(write_davis(folder / "davis", ["ball"])),
    }
    known: dict[type, Any] = {}

    def open_for(protocol: object) -> Any:
        kind = type(protocol)
        if kind not in known:
            known[kind] = kinds.get(kind, lambda: Labelled().open(root))()
        return known[kind]

    return open_for


def measured(
    name: str, folder: Path, opened: Callable[[object], Any], extractor: FeatureExtractor
) -> Measures:
    """A task of the catalog on a small set, with its own settings but for the time it takes."""
    reference = folder / "reference.safetensors"
    if not reference.exists():
        vit = tiny_model(seed=1).backbone.vit
        weights = {key: tensor.contiguous() for key, tensor in vit.state_dict().items()}
        save_file(weights, reference, metadata={"heads": "2"})
    quick = {
        "linear": ["epochs=1"],
        "linear-20": ["epochs=1"],
        "linear-cached": ["epochs=1"],
        "linear-places205": ["epochs=1"],
        "backgrounds": ["epochs=1"],
        "occlusion": ["epochs=1", f"reference={reference}"],
        "segment-linear": ["steps=3"],
        "video": ["short_side=48"],
    }
    (task,) = find_tasks([name], quick.get(name, []))
    data = opened(task.protocol)
    if name == "segment-upernet":
        model = load_model(segment_run(reference, folder / "masked", folder / "segments"))
    elif name == "detect-cascade":
        model = load_model(detect_run(reference, folder / "boxed", folder / "objects"))
    else:
        model = with_classifier(tiny_model(), CLASSES)
    measures: Measures = task.protocol.measure(model, data, extractor)
    return measures


@pytest.mark.parametrize("name", [task.name for task in TASKS])
def test_the_keys_of_a_task_are_stable_and_its_old_cards_open_under_them(
    name: str, folder: Path, opened: Callable[[object], Any], extractor: FeatureExtractor
) -> None:
    found = measured(name, folder, opened, extractor)
    assert [metric.key for metric in found.metrics] == list(KEYS[name])
    (task,) = find_tasks([name])
    known = [metric for metric in found.metrics if KEYS[name][metric.key]]
    numbers = {KEYS[name][metric.key]: metric.value for metric in known}
    numbers |= {
        f"{KEYS[name][metric.key]}, deviation": metric.spread
        for metric in known
        if metric.spread is not None
    }
    ks = {KEYS[name][key]: k for key, k in found.details.get("k", {}).items()}
    old = {"task": name, "protocol": {"kind": type(task.protocol).__name__}}
    assert metrics_of_numbers({**old, "numbers": numbers, "details": {"k": ks}}) == known


def test_the_log_has_the_keys_and_the_numbers_of_the_cards(scenes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    pretrain(scenes, recipe="tiny", out=run, overrides=[*SHORT, "schedule.epochs=1"])
    *_, logged = [record for record in read_metrics(run) if "knn.top1" in record]
    # Without its head, because only the backbone is evaluated in a training.
    teacher = load_model(run)
    state = teacher.backbone.vit.state_dict()
    weights = {key: tensor.contiguous() for key, tensor in state.items()}
    heads = {"heads": str(teacher.describe(32)["heads"])}
    save_file(weights, tmp_path / "teacher.safetensors", metadata=heads)
    cards = evaluate(
        tmp_path / "teacher.safetensors",
        ["knn", "objects", "segment-knn", "quality"],
        data=scenes,
        overrides=["knn.ks=[20]", "ignored=[]"],
        cache=tmp_path / "cache",
        workers=0,
    )
    shown = {key: value for card in cards for key, value in card.values.items()}
    for measure in ("aacc", "macc"):
        del shown[f"segment_knn.{measure}"]  # only the first measure is logged
    assert set(logged) - {"step", "epoch", "time"} == set(shown)
    assert [logged[key] for key in shown] == pytest.approx(list(shown.values()), rel=1e-4)
