"""What is measured while a network trains: by labels, by masks, on images never trained on."""

import logging
import shutil
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.source import Source, everything
from attmask.data.sources import open_images
from attmask.data.subset import first_per_class
from attmask.errors import UserError
from attmask.evaluation import online as module
from attmask.evaluation.datasets.pictures import Shown
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features, collect, forward
from attmask.evaluation.features.images import CachedCrops
from attmask.evaluation.features.readout import CLS
from attmask.evaluation.metrics.objects import object_metrics
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.online import OnlineEvaluation, crops_held
from attmask.evaluation.protocols.knn import knn_accuracy
from attmask.evaluation.protocols.label_free import Quality
from attmask.evaluation.reporting import progress
from attmask.hardware import Precision
from attmask.interrupt import StopRequestedError
from attmask.metric import values_by_key
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.monitor import PretrainMonitorConfig
from tests.evaluation.object_reports import objects_of

DATA, MONITOR = DataConfig(), PretrainMonitorConfig()


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=24, depth=2, heads=3)
    return build_backbone(config, image_size=32, channels=3)


def online(images: Images, monitor: PretrainMonitorConfig = MONITOR) -> OnlineEvaluation:
    return OnlineEvaluation(images, DATA, monitor, image_size=32)


@pytest.mark.parametrize("after", [1, 3, 12])
def test_it_stops_between_two_batches(
    scenes: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(module, "BATCH", 4)
    asked: list[bool] = []

    def stopped() -> bool:
        asked.append(len(asked) + 1 == after)
        return asked[-1]

    with pytest.raises(StopRequestedError):
        online(open_images(scenes))(backbone, nullcontext, stopped)
    assert len(asked) == after


def test_its_progress_counts_every_image_once(
    scenes: Path,
    backbone: Backbone,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    measure = online(open_images(scenes))
    caplog.clear()
    with caplog.at_level(logging.INFO):
        measure(backbone, nullcontext)
    counts = [line.split()[1::2] for line in caplog.messages if line.startswith("evaluating: ")]
    assert len(counts) >= 4
    told = "20 queries, 48 in the bank, 20 objects, 68 segmented, 20 in two views"
    assert counts[-1] == ["196", "196"], told


def measured(evaluation: OnlineEvaluation, backbone: Backbone) -> dict[str, float]:
    return values_by_key(evaluation(backbone, nullcontext))


def names(numbers: dict[str, float]) -> set[str]:
    return {name.partition(".")[0] for name in numbers}


def features_of(backbone: Backbone, source: Source) -> Features:
    crops = CachedCrops(source, CenterCrop(32), DATA)
    return Features(collect(forward(backbone, crops.batches(64), CLS, DATA)), crops.labels)


def test_it_measures_what_the_evaluations_measure(scenes: Path, backbone: Backbone) -> None:
    images = open_images(scenes)
    assert images.val is not None
    numbers = measured(online(images), backbone)
    bank, queries = (features_of(backbone, source) for source in (images.train, images.val))
    accuracy = knn_accuracy(bank, queries, k=20, classes=10)
    assert numbers["knn.top1"] == accuracy.top1
    assert numbers["knn.top5"] == accuracy.top5
    report = objects_of(backbone, images.val, image_size=32, data=DATA)
    for metric in object_metrics(report):
        tolerance = 1e-4 if metric.unit == "%" else 1e-6
        assert numbers[metric.key] == pytest.approx(metric.value, abs=tolerance)
    assert names(numbers) == {"knn", "objects", "segment_knn", "label_free"}
    assert list(numbers)[:2] == ["knn.top1", "knn.top5"], "these are shown to a person"


def test_quality_is_what_the_task_measures_on_the_same_images(
    scenes: Path, tmp_path: Path, backbone: Backbone
) -> None:
    images = open_images(scenes)
    assert images.val is not None
    numbers = measured(online(images), backbone)
    cpu = torch.device("cpu")
    extractor = FeatureExtractor(
        device=cpu, precision=Precision.choose("fp32", cpu), cache=tmp_path
    )
    model = FrozenModel("tiny", backbone, 32, DATA)
    found = Quality().measure(model, Shown(images.val), extractor).values
    assert {key for key in numbers if key.startswith("label_free.")} == set(found)
    for key, value in found.items():
        assert numbers[key] == pytest.approx(value, rel=1e-5)
    bare = Images(everything(images.train.root, images.train.store), replace(images.val))
    assert measured(online(bare), backbone)["label_free.rank"] == numbers["label_free.rank"]


def test_images_for_quality_are_evenly_spread_over_those_that_knn_asks_about(
    scenes: Path, backbone: Backbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = open_images(scenes)
    half = online(images, PretrainMonitorConfig(quality_max_images=10))
    assert half.queries.labels is not None
    assert half.queries.labels[half.probe].tolist() == list(range(10))
    assert [view.pixels.shape for view in half.views] == [(10, 3, 32, 32)] * 2
    assert "label_free.uniformity" in measured(half, backbone)
    monkeypatch.setattr(module, "ALIGNED_IMAGES", 5)
    fewer = online(images, PretrainMonitorConfig(quality_max_images=10))
    for few, ten in zip(fewer.views, half.views, strict=True):
        assert torch.equal(few.pixels, ten.pixels[::2]), "every other of the ten"
    alone = measured(online(images, PretrainMonitorConfig(quality_max_images=1)), backbone)
    assert alone["label_free.rank"] == pytest.approx(1, abs=1e-4)
    assert "label_free.uniformity" not in alone, "it is about pairs"


def test_without_labels_and_val_quality_is_measured_on_images_trained_on(scenes: Path) -> None:
    train = open_images(scenes).train
    unlabelled = Images(everything(train.root, train.store))
    few = online(unlabelled, PretrainMonitorConfig(quality_max_images=12))
    assert few.queries.indices == list(range(0, 48, 4))
    quarter = OnlineEvaluation(unlabelled, DataConfig(percent=25), MONITOR, image_size=32)
    assert quarter.queries.indices == list(range(12))


def test_a_network_that_diverged_is_named_so(scenes: Path, backbone: Backbone) -> None:
    train = open_images(scenes).train
    evaluation = online(Images(everything(train.root, train.store)))
    broken = deepcopy(backbone)
    for weight in broken.vit.norm.parameters():
        torch.nn.init.constant_(weight, torch.nan)
    evaluation.masked = []
    with pytest.raises(UserError, match="not finite; the run diverged"):
        evaluation(broken, nullcontext)


def test_without_val_the_test_images_are_asked_about(scenes: Path) -> None:
    images = open_images(scenes)
    by_test = online(Images(images.train, test=images.val))
    assert torch.equal(by_test.queries.pixels, online(images).queries.pixels)


def test_a_held_out_class_that_train_lacks_is_asked_about_and_never_right(
    scenes: Path, backbone: Backbone
) -> None:
    images = open_images(scenes)
    assert images.train.labels is not None
    kept = images.train.labels != len(images.train.classes) - 1
    few = replace(images.train.subset(np.flatnonzero(kept)), classes=images.train.classes[:-1])
    evaluation = online(Images(few, images.val))
    found = measured(evaluation, backbone)
    assert evaluation.classes == len(images.train.classes)
    assert 0 <= found["knn.top1"] <= 100


def test_held_out_images_of_other_classes_alone_are_not_asked_about(scenes: Path) -> None:
    images = open_images(scenes)
    assert images.val is not None
    assert images.val.labels is not None
    strangers = replace(images.val, labels=images.val.labels + 10, classes=("x",) * 20)
    evaluation = online(Images(images.train, test=strangers))
    alone = online(Images(images.train))
    assert torch.equal(evaluation.queries.pixels, alone.queries.pixels)


def test_without_val_a_tenth_of_each_class_is_asked_about_and_not_in_the_bank(
    scenes: Path, backbone: Backbone, caplog: pytest.LogCaptureFixture
) -> None:
    train = open_images(scenes).train
    with caplog.at_level(logging.INFO):
        evaluation = online(Images(train))
    assert (
        "no val or test images of the training classes: online k-NN uses 10 % of the training"
        in caplog.text
    )
    assert evaluation.bank is not None
    assert len(evaluation.bank) + len(evaluation.queries) == len(train)
    assert len(evaluation.queries) == 10, "one of each class of four or five"
    pixels = {crop.numpy().tobytes() for crop in evaluation.bank.pixels}
    assert all(crop.numpy().tobytes() not in pixels for crop in evaluation.queries.pixels)
    assert 0 <= measured(evaluation, backbone)["knn.top1"] <= 100


def test_without_labels_there_is_no_knn_and_without_masks_no_object(
    scenes: Path, tmp_path: Path, backbone: Backbone
) -> None:
    train = open_images(scenes).train
    unlabelled = Images(everything(train.root, train.store))
    assert names(measured(online(unlabelled), backbone)) == {"objects", "segment_knn", "label_free"}
    assert online(unlabelled).baselines() == {}
    shutil.copytree(scenes / "train", tmp_path / "elsewhere")
    apart = open_images(tmp_path / "elsewhere")
    assert names(measured(online(apart), backbone)) == {"knn", "label_free"}
    bare = Images(everything(apart.train.root, apart.train.store))
    assert names(measured(online(bare), backbone)) == {"label_free"}


def test_one_class_or_one_image_a_class_is_nothing_to_ask_about(
    scenes: Path, backbone: Backbone
) -> None:
    train = open_images(scenes).train
    single = first_per_class(train, 1)
    assert names(measured(online(Images(single)), backbone)) == {
        "objects",
        "segment_knn",
        "label_free",
    }
    alone = replace(train, labels=np.zeros(len(train), dtype=np.int64), classes=("all",))
    assert names(measured(online(Images(alone)), backbone)) == {
        "objects",
        "segment_knn",
        "label_free",
    }


def test_limits_and_the_first_of_each_class_are_kept_to(scenes: Path, backbone: Backbone) -> None:
    images = open_images(scenes)
    limited = online(images, PretrainMonitorConfig(knn_max_bank_images=20, knn_max_query_images=10))
    assert limited.bank is not None
    assert (len(limited.bank), len(limited.queries)) == (20, 10)
    numbers = measured(limited, backbone)
    assert numbers["objects.images"] == 10
    few = OnlineEvaluation(images, DataConfig(per_class=2), MONITOR, image_size=32)
    assert few.bank is not None
    assert (len(few.bank), len(few.queries)) == (20, 20)
    tiny = OnlineEvaluation(images, DataConfig(per_class=1), MONITOR, image_size=32)
    assert tiny.k == 10, "no more neighbours than there are images"


def test_baselines_are_chance_colours_and_pixels(scenes: Path) -> None:
    baselines = online(open_images(scenes)).baselines()
    assert baselines["chance"] == 10.0
    assert len(baselines) == 3
    assert all(0 <= accuracy <= 100 for accuracy in baselines.values())


def test_measuring_changes_nothing_about_the_network_or_the_random_state(
    scenes: Path, backbone: Backbone
) -> None:
    evaluation = online(open_images(scenes))
    backbone.train()
    state = torch.get_rng_state()
    first = measured(evaluation, backbone)
    assert measured(evaluation, backbone) == first
    assert backbone.training
    assert torch.equal(torch.get_rng_state(), state)


def test_a_file_that_cannot_be_read_is_left_out_and_named(
    scenes: Path, tmp_path: Path, backbone: Backbone, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(scenes / "train", tmp_path / "train")
    source = open_images(tmp_path / "train").train
    whole = CachedCrops(source, CenterCrop(32), DATA)
    Path(source.place(7)).write_bytes(b"no picture")
    with caplog.at_level(logging.WARNING):
        crops = CachedCrops(source, CenterCrop(32), DATA)
    assert crops.indices == [i for i in range(48) if i != 7]
    assert torch.equal(crops.pixels, whole.pixels[crops.indices])
    assert crops.labels is not None
    assert whole.labels is not None
    assert torch.equal(crops.labels, whole.labels[crops.indices])
    (line,) = caplog.messages
    assert f"1 of 48 images of {source.root} cannot be read, the first is {source.place(7)}" in line
    assert 0 <= measured(online(Images(source)), backbone)["knn.top1"] <= 100


def test_top_5_is_logged_only_where_five_images_vote(scenes: Path, backbone: Backbone) -> None:
    images = open_images(scenes)
    four = MONITOR.model_copy(update={"knn_k": 4})
    assert "knn.top5" not in measured(online(images, four), backbone)
    five = MONITOR.model_copy(update={"knn_k": 5})
    assert "knn.top5" in measured(online(images, five), backbone)


@pytest.mark.parametrize("labelled", [True, False])
def test_the_crops_that_are_held_are_those_that_were_counted(scenes: Path, labelled: bool) -> None:
    some_class = min((scenes / "train").iterdir())
    images = open_images(scenes if labelled else some_class)
    monitor = PretrainMonitorConfig(knn_max_bank_images=30, quality_max_images=10)
    made = OnlineEvaluation(images, DATA, monitor, image_size=32)
    bank = 0 if made.bank is None else len(made.bank)
    held = bank + len(made.queries) + sum(map(len, made.views))
    assert crops_held(images, DATA, monitor) == held
    assert (bank == 0) == (not labelled)


def test_masks_that_cannot_be_used_do_not_end_a_training(
    scenes: Path, tmp_path: Path, backbone: Backbone, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(scenes, tmp_path / "data")
    mask = min((tmp_path / "data" / "masks" / "val").rglob("*.png"))
    Image.new("L", (5, 5)).save(mask)
    evaluation = online(open_images(tmp_path / "data"))
    assert names(measured(evaluation, backbone)) == {"knn", "label_free"}
    assert "a mask must have the size of its image; objects are not evaluated" in caplog.text
    caplog.clear()
    assert names(measured(evaluation, backbone)) == {"knn", "label_free"}
    assert caplog.text == ""
