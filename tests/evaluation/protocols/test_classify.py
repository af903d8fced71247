import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.catalog import find_tasks
from attmask.evaluation.datasets.pictures import Pictures, Shown
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.metrics.accuracy import accuracy
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.classify import Classify
from attmask.evaluation.run import measure
from tests.evaluation.models import with_classifier


@pytest.fixture(scope="module")
def data(scenes: Path) -> Shown:
    return Pictures(max_images=None).open(scenes)


@pytest.fixture
def tuned(model: FrozenModel, data: Shown) -> FrozenModel:
    """With a class that the images lack, and another order of the classes."""
    return with_classifier(model, ("a class without images", *reversed(data.images.classes)))


def test_the_accuracy_is_that_of_the_classifier_whatever_the_order_of_its_classes(
    tuned: FrozenModel, data: Shown, extractor: FeatureExtractor
) -> None:
    found = Classify().measure(tuned, data, extractor)
    classifier = tuned.classifier
    assert classifier is not None
    features = extractor.features(tuned, data.images, CenterCrop(32), classifier.readout)
    assert features.labels is not None
    mirrored = replace(features, labels=len(data.images.classes) - features.labels)
    expected = accuracy(classifier, mirrored)
    assert found.values["classify.top1"] == pytest.approx(expected.top1)
    assert found.values["classify.top5"] == pytest.approx(expected.top5)
    assert found.notes == ("1 class without an image is left out of the mean accuracy per class",)
    assert found.details["classifier"]["sha256"] == classifier.digest
    assert sum(row["images"] for row in found.details["classes"]) == len(data.images)
    assert [file.name for file in found.files] == [
        "per_class.csv",
        "confusion.csv",
        "confusion.png",
    ]
    assert all(file.is_file() for file in found.files)


def test_a_card_names_the_classifier_and_can_be_drawn(
    tuned: FrozenModel, data: Shown, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    (task,) = find_tasks(["classify"])
    card = measure(task, tuned, data, tmp_path, extractor)
    assert tuned.classifier is not None
    assert card.hashes["classifier"] == tuned.classifier.digest
    assert card.images == {"val": 20}
    Classify().draw([card, card], tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def joined_labels(source: Source, names: tuple[str, ...]) -> Source:
    return replace(source, classes=names, labels=np.arange(len(source)) % len(names))


def test_several_classes_per_image_are_taken_apart_by_name(
    model: FrozenModel, data: Shown, extractor: FeatureExtractor
) -> None:
    tuned = with_classifier(model, ("c", "b", "a", "never"), multi_label=True)
    images = joined_labels(data.images, ("a|b", "b", "|", "c|a"))
    found = Classify().measure(tuned, replace(data, images=images), extractor)
    assert list(found.values) == ["classify.map", "classify.f1", "classify.f1_micro"]
    assert {row["name"]: row["images"] for row in found.details["classes"]} == {
        "c": 5,
        "b": 10,
        "a": 10,
        "never": 0,
    }
    assert [file.name for file in found.files] == ["per_class.csv"]
    with found.files[0].open(newline="") as opened:
        assert [row["class"] for row in csv.DictReader(opened)] == ["c", "b", "a", "never"]
    lower = Classify(threshold=0.01).measure(tuned, replace(data, images=images), extractor)
    assert lower.values["classify.map"] == found.values["classify.map"]
    assert lower.values["classify.f1"] != found.values["classify.f1"]


def test_what_does_not_fit_is_one_line_before_any_image_is_read(
    model: FrozenModel, data: Shown, tuned: FrozenModel
) -> None:
    Classify().check(tuned, data)
    with pytest.raises(UserError, match="tiny has no classifier; train one with `attmask finetun"):
        Classify().check(model, data)
    first, *others = data.images.classes
    with pytest.raises(UserError, match=rf"does not know 1 of the .* the first is {first}; give"):
        Classify().check(with_classifier(model, others), data)
    several = with_classifier(model, others, multi_label=True)
    with pytest.raises(UserError, match=f"the classifier does not know the class {first} of"):
        Classify().check(several, data)
    assert data.images.labels is not None
    unused = replace(data, images=data.images.subset(np.flatnonzero(data.images.labels)))
    Classify().check(several, unused)  # no image has the unknown class
    without = replace(data, images=replace(data.images, labels=None, classes=()))
    with pytest.raises(UserError, match=r"have no labels; use one folder per class, or `attmask"):
        Classify().check(tuned, without)
    assert tuned.classifier is not None
    wide = replace(tuned.classifier, weight=torch.zeros(len(tuned.classifier.classes), 25))
    with pytest.raises(UserError, match="was trained on width 25, but its features have width 24"):
        Classify().check(replace(tuned, classifier=wide), data)


def test_a_classifier_of_the_task_linear_serves_too(
    model: FrozenModel, tuned: FrozenModel, data: Shown, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    assert tuned.classifier is not None
    tuned.classifier.save(tmp_path / "c.safetensors")
    given = Classify(classifier=tmp_path / "c.safetensors")
    assert given.shown_size(model) == 32
    found = given.measure(model, data, extractor)
    assert found.values == Classify().measure(tuned, data, extractor).values


def test_the_result_is_kept_where_the_files_cannot_be_written(
    tuned: FrozenModel, data: Shown, extractor: FeatureExtractor
) -> None:
    expected = Classify().measure(tuned, data, extractor).values
    plots = extractor.cache / "plots"
    plots.rename(extractor.cache / "other")
    plots.write_text("a file")
    found = Classify().measure(tuned, data, extractor)
    assert found.values == expected
    assert found.files == ()
    assert found.notes[-1].startswith("no files were written: cannot write ")
