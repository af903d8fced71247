"""The task detect-cascade: a fine-tuned detector on annotated images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attmask.errors import UserError
from attmask.evaluation.catalog import find_tasks
from attmask.evaluation.datasets.annotated import Objects, WithBoxes
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.detect_cascade import DetectCascade
from attmask.evaluation.run import measure
from tests.data.coco_files import CATEGORIES, an_image, an_object, write_coco
from tests.evaluation.detection.test_measuring import detector


def data(root: Path, **other: Any) -> Objects:
    """Two images with the object that the detector finds; one has another object, too."""
    objects = [
        *(an_object(1, image=7), an_object(2, image=8)),
        an_object(3, image=8, category_id=3, bbox=[10, 1, 5, 5], segmentation=None),
    ]
    write_coco(root / "annotations.json", objects, [an_image(7), an_image(8)], **other)
    return WithBoxes().open(root)


@pytest.fixture
def images(tmp_path: Path) -> Objects:
    return data(tmp_path / "data")


@pytest.fixture
def tuned(model: FrozenModel, images: Objects) -> FrozenModel:
    return replace(model, detector=detector(images.images))


def test_every_class_is_measured_and_the_worst_image_comes_first(
    tuned: FrozenModel, images: Objects, extractor: FeatureExtractor
) -> None:
    DetectCascade().check(tuned, images)
    found = DetectCascade().measure(tuned, images, extractor)
    assert found.values["detect.box_ap"] == pytest.approx(50)
    rows = {row["name"]: (row["objects"], row["box_ap"]) for row in found.details["classes"]}
    assert rows == {"dog": (2, pytest.approx(100)), "cat": (1, 0.0), "bird": (0, None)}
    worst, other = found.details["worst"]
    assert worst == {"image": "8.png", "f1": pytest.approx(200 / 3)}
    assert other == {"image": "7.png", "f1": 100.0}
    assert [file.name for file in found.files] == ["per_class.csv", "predictions.png"]
    assert all(file.is_file() for file in found.files)


@pytest.mark.parametrize(
    ("categories", "told"),
    [
        ([{"id": 1, "name": "wolf"}, *CATEGORIES[::2]], "category 1 is wolf in .* and dog in the"),
        ([*CATEGORIES, {"id": 4, "name": "cow"}], "category 4 is cow in .* and missing in the"),
        (CATEGORIES[:2], "category 90 is missing in .* and bird in the training"),
    ],
    ids=["another name", "one more", "one less"],
)
def test_other_categories_are_one_line_before_any_image_is_read(
    tuned: FrozenModel, tmp_path: Path, categories: list[dict[str, Any]], told: str
) -> None:
    with pytest.raises(UserError, match=told) as caught:
        DetectCascade().check(tuned, data(tmp_path / "other", categories=categories))
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("give images with the same categories")


def test_a_network_without_a_detector_is_one_line(model: FrozenModel, images: Objects) -> None:
    with pytest.raises(UserError, match="tiny has no detector; train one with `attmask finetune"):
        DetectCascade().check(model, images)


def test_a_card_names_the_detector_and_can_be_drawn(
    tuned: FrozenModel, images: Objects, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    (task,) = find_tasks(["detect-cascade"])
    card = measure(task, tuned, images, tmp_path, extractor)
    assert tuned.detector is not None
    assert card.hashes["detector"] == tuned.detector.digest
    assert dict(card.images) == {"train": 2}
    DetectCascade().draw([card], tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_the_result_is_kept_where_the_files_cannot_be_written(
    tuned: FrozenModel, images: Objects, extractor: FeatureExtractor
) -> None:
    extractor.cache.mkdir(parents=True)
    (extractor.cache / "plots").write_text("a file")
    found = DetectCascade().measure(tuned, images, extractor)
    assert found.values["detect.box_ap"] == pytest.approx(50)
    assert found.files == ()
    assert found.notes[-1].startswith("no files were written: cannot write ")
