from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.data.synthetic import CLASSES
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.forward import normalise
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.predictions import Choice, Predictions, pictures_of
from tests.evaluation.models import CPU, extractor_in, tiny_model, with_classifier
from tests.processes import run_group
from tests.sources import names, png, touch


def predicted(
    model: FrozenModel,
    sources: dict[str, Source],
    folder: Path,
    *,
    batch_size: int = 64,
    top: int | None = None,
    threshold: float | None = None,
) -> Predictions:
    assert model.classifier is not None
    choice = Choice.of(model.classifier, top, threshold)
    extractor = extractor_in(folder, batch_size=batch_size)
    return Predictions(model, model.classifier, sources, choice, extractor, CPU)


@pytest.fixture(scope="module")
def tuned() -> FrozenModel:
    return with_classifier(tiny_model(), CLASSES)


@pytest.fixture(scope="module")
def val(scenes: Path) -> dict[str, Source]:
    return pictures_of(scenes, "val", 3)


def test_every_image_has_the_probabilities_of_network_and_classifier(
    tuned: FrozenModel, val: dict[str, Source], tmp_path: Path
) -> None:
    found = predicted(tuned, val, tmp_path, top=3)
    assert len(found) == 20
    records = list(found)
    source = val["val"]
    assert [record.name for record in records] == names(source)
    head = tuned.classifier
    assert head is not None
    for index, record in enumerate(records):
        pixels = CenterCrop(32)(decode(source, index, DataConfig()), index)[None]
        image = normalise(pixels, tuned.data.mean, tuned.data.std)
        logits = head.weight @ tuned.backbone.summary(image).cls[0] + head.bias
        expected = logits.softmax(dim=0).numpy()
        assert record.every is not None
        np.testing.assert_allclose(record.every, expected, rtol=1e-4, atol=1e-6)
        ranked = sorted(range(len(CLASSES)), key=lambda c: -expected[c])[:3]
        assert record.classes == tuple(CLASSES[number] for number in ranked)
        assert record.probabilities == pytest.approx(expected[ranked], rel=1e-4)
        assert source.labels is not None
        assert record.label == source.classes[int(source.labels[index])]
        assert record.split == "val"


@pytest.mark.parametrize("batch_size", [1, 7, 20])
def test_batches_change_nothing(
    tuned: FrozenModel, val: dict[str, Source], tmp_path: Path, batch_size: int
) -> None:
    one = [r.every for r in predicted(tuned, val, tmp_path)]
    other = [r.every for r in predicted(tuned, val, tmp_path, batch_size=batch_size)]
    np.testing.assert_allclose(np.stack(one), np.stack(other), atol=1e-5)  # type: ignore[arg-type]


def test_all_classes_from_the_threshold_on_are_named_the_most_probable_first(
    val: dict[str, Source], tmp_path: Path
) -> None:
    several = with_classifier(tiny_model(), ("a", "b", "c"), multi_label=True)
    for threshold in (0.2, 0.5):
        for record in predicted(several, val, tmp_path, threshold=threshold):
            assert record.every is not None
            above = {c for c, p in zip("abc", record.every, strict=True) if p >= threshold}
            assert set(record.classes) == above
            assert list(record.probabilities) == sorted(record.probabilities, reverse=True)
    counts = [len(record.classes) for record in predicted(several, val, tmp_path)]
    assert len(set(counts)) > 1, "any number of classes"


def test_unreadable_images_have_a_record_without_a_class(
    tuned: FrozenModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "b.png").write_bytes(png(80))
    touch(tmp_path, "a.png", "c.png")
    sources = pictures_of(tmp_path, None, 3)
    records = list(predicted(tuned, sources, tmp_path / "cache", batch_size=2))
    assert [(r.name, len(r.classes), r.every is None) for r in records] == [
        ("a.png", 0, True),
        ("b.png", 1, False),
        ("c.png", 0, True),
    ]
    assert records[0].label is None
    assert "2 of 3 images of" in caplog.text
    assert "the first is a.png; they have no prediction" in caplog.text


def test_one_picture_all_splits_or_one_of_them(scenes: Path, tmp_path: Path) -> None:
    (tmp_path / "x.PNG").write_bytes(png(80))
    (source,) = pictures_of(tmp_path / "x.PNG", None, 3).values()
    assert names(source) == ["x.PNG"]
    assert source.place(0) == str(tmp_path / "x.PNG")
    assert list(pictures_of(scenes, None, 3)) == ["train", "val"]
    assert list(pictures_of(scenes, "train", 3)) == ["train"]
    with pytest.raises(UserError, match=r"there is no split test in .*, only train, val; choose"):
        pictures_of(scenes, "test", 3)


@pytest.mark.parametrize(
    ("multi_label", "top", "threshold", "says"),
    [
        (True, 2, None, "top=2 was given, but this classifier may give an image several classes"),
        (False, None, 0.3, "threshold=0.3 was given, but this classifier gives each image one"),
        (True, None, 1.5, "threshold=1.5 is not between 0 and 1"),
        (False, 0, None, "top=0 is less than 1"),
    ],
)
def test_what_does_not_fit_the_classifier_is_one_line(
    multi_label: bool, top: int | None, threshold: float | None, says: str
) -> None:
    known = with_classifier(tiny_model(), ("a", "b"), multi_label=multi_label).classifier
    assert known is not None
    with pytest.raises(UserError, match=says):
        Choice.of(known, top, threshold)
    if not multi_label:
        assert Choice.of(known, 9, None).top == 2, "no more classes than there are"


def test_predictions_that_are_not_finite_are_refused(
    tuned: FrozenModel, val: dict[str, Source], tmp_path: Path
) -> None:
    assert tuned.classifier is not None
    bias = torch.full_like(tuned.classifier.bias, torch.nan)
    broken = replace(tuned, classifier=replace(tuned.classifier, bias=bias))
    with pytest.raises(UserError, match="are not finite; its training diverged"):
        list(predicted(broken, val, tmp_path))


SCRIPT = """
import sys
from pathlib import Path
from attmask.data.synthetic import CLASSES
from attmask.evaluation.predictions import pictures_of
from tests.evaluation.models import tiny_model, with_classifier
from tests.evaluation.test_predictions import predicted

images, folder = map(Path, sys.argv[1:])
model = with_classifier(tiny_model(), CLASSES)
for record in predicted(model, pictures_of(images, None, 3), folder, batch_size=7):
    print(record.split, record.name, *record.classes, f"{record.probabilities[0]:.4f}")
"""


@pytest.mark.slow
def test_two_processes_predict_what_one_does_in_the_same_order(
    tuned: FrozenModel, scenes: Path, tmp_path: Path
) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)
    first, second = run_group([file, scenes, tmp_path / "cache"], 2)
    alone = [
        f"{r.split} {r.name} {r.classes[0]} {r.probabilities[0]:.4f}"
        for r in predicted(tuned, pictures_of(scenes, None, 3), tmp_path)
    ]
    assert len(alone) == 68
    assert [line for line in first.splitlines() if line.startswith(("train", "val"))] == alone
    assert not any(line.startswith(("train", "val")) for line in second.splitlines())
