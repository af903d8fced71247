import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.subset import first_per_class
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.datasets.backgrounds import KINDS, VARIANTS, Backgrounds, ChangedBackgrounds
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features, normalise
from attmask.evaluation.features.readout import CLS, Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.backgrounds import BackgroundReliance, recognise
from attmask.hardware import Precision
from attmask.models.backbone import BackboneConfig, build_backbone
from tests.real_data import FOLDER, needs

CPU = torch.device("cpu")
MAPPING = [0, -1, 1, 2, 3, -1, 4, 5, 6, 7, 8, 0]  # twelve classes instead of a thousand


@pytest.fixture
def extractor(tmp_path: Path) -> FeatureExtractor:
    return FeatureExtractor(CPU, Precision.choose("fp32", CPU), tmp_path / "cache", batch_size=8)


@pytest.fixture
def model() -> FrozenModel:
    config = BackboneConfig(
        name="vit_tiny_patch16_224", width=24, depth=2, heads=2, patch_size=8, init_std=0.2
    )
    torch.manual_seed(0)
    return FrozenModel("tiny", build_backbone(config, image_size=32, channels=3), 32, DataConfig())


def tint(kind: int, seed: int, size: int) -> Image.Image:
    """Noise of a colour of its own for each kind."""
    noise = np.random.default_rng([kind, seed]).integers(0, 40, (size, size, 3))
    colour = np.array([kind % 3, kind // 3, (kind + 1) % 2]) * 100
    return Image.fromarray(np.clip(colour + noise, 0, 255).astype(np.uint8))


def published(
    root: Path, variants: Mapping[str, int], *, train: int = 0, size: int = 24, shift: int = 0
) -> ChangedBackgrounds:
    """Some images of each kind for each variant; `shift` shows other kinds than it says."""
    parts = {f"{folder}/val": count for folder, count in variants.items()}
    for number, (part, count) in enumerate({**parts, "original/train": train}.items()):
        for kind, name in enumerate(KINDS):
            for i in range(count):
                shown = (kind + shift * (part == "mixed_rand/val")) % 9
                (root / part / name).mkdir(parents=True, exist_ok=True)
                tint(shown, 100 * number + i, size).save(root / part / name / f"{i}.png")
    mapping = {str(number): kind for number, kind in enumerate(MAPPING)}
    (root / "in_to_in9.json").write_text(json.dumps(mapping))
    return Backgrounds().open(root)


def kept(
    file: Path, model: FrozenModel, classes: Sequence[str], weight: Tensor | None = None
) -> Path:
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(len(classes), 24, generator=draw) if weight is None else weight
    LinearClassifier(weight, torch.zeros(len(classes)), tuple(classes), CLS, 32, model.digest).save(
        file
    )
    return file


TWELVE = [f"n{number}" for number in range(12)]


def test_all_classes_compete_and_those_of_no_kind_are_wrong(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    data = published(tmp_path / "in9", {"original": 2, "only_fg": 1})
    file = kept(tmp_path / "c.safetensors", model, TWELVE)
    measures = BackgroundReliance(classifier=file).measure(model, data, extractor)
    classifier = LinearClassifier.load(file, network=model.digest)
    for name, source in data.tests.items():  # picture after picture, as it lies on disk
        right = outside = 0
        assert source.labels is not None
        for i, label in enumerate(source.labels.tolist()):
            pixels = torch.from_numpy(np.array(Image.open(source.place(i)))).permute(2, 0, 1)
            with torch.no_grad():
                image = normalise(pixels[None], model.data.mean, model.data.std)
                logits = classifier.logits(model.backbone(image).cls)[0].tolist()
            kind = MAPPING[max(range(12), key=lambda c: logits[c])]
            right += kind == label
            outside += kind == -1
        assert measures.values[f"backgrounds.{VARIANTS[name]}"] == pytest.approx(
            100 * right / len(source)
        )
        told = measures.details["answers outside the nine kinds, per cent"]
        assert told[name] == pytest.approx(100 * outside / len(source))
    assert list(measures.values) == ["backgrounds.original", "backgrounds.only_fg"]
    assert "has 12 classes; the 2 outside the nine kinds" in measures.notes[0]
    assert "missing variants: mixed same, mixed random" in measures.notes[1]


def test_kinds_and_not_classes_are_right_or_wrong() -> None:
    # Classes 0 and 11 are both dogs, class 1 is nothing, class 2 a bird.
    vectors = torch.eye(12)[[0, 11, 1, 2, 2]]
    features = Features(vectors, torch.tensor([0, 0, 0, 1, 0]))
    judge = LinearClassifier(torch.eye(12), torch.zeros(12), tuple(TWELVE), CLS, 32, "x")
    answers = recognise(judge, features, torch.tensor(MAPPING))
    assert (answers.right, answers.outside) == (60, 20)


def test_chunks_do_not_change_the_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    features = Features(torch.randn(50, 24, generator=draw), torch.arange(50) % 9)
    weight = torch.randn(12, 24, generator=draw)
    judge = LinearClassifier(weight, torch.zeros(12), tuple(TWELVE), CLS, 32, "x")
    whole = recognise(judge, features, torch.tensor(MAPPING))
    monkeypatch.setattr("attmask.evaluation.protocols.backgrounds._ROWS_AT_ONCE", 7)
    assert recognise(judge, features, torch.tensor(MAPPING)) == whole


def test_a_nine_way_classifier_is_fitted_on_the_original_training_images(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    everything = dict.fromkeys(VARIANTS.values(), 2)
    data = published(tmp_path / "in9", everything, train=6, shift=4)
    protocol = BackgroundReliance(epochs=30, readout=Embedding(token="gap"))
    measures = protocol.measure(model, data, extractor)
    assert list(measures.values) == [
        *(f"backgrounds.{folder}" for folder in VARIANTS.values()),
        "backgrounds.gap",
    ]
    assert measures.values["backgrounds.original"] > 80
    assert measures.values["backgrounds.mixed_rand"] < 20  # it shows another kind than it says
    gap = measures.values["backgrounds.mixed_same"] - measures.values["backgrounds.mixed_rand"]
    assert measures.values["backgrounds.gap"] == gap > 50
    assert measures.notes == (
        "the classifier has only the nine kinds as classes",
        "the classifier was fitted for 30 epochs of 54 images with a batch size of 32: 60 steps",
    )
    (file,) = (extractor.cache / "classifiers").iterdir()
    fitted = LinearClassifier.load(file, network=model.digest)
    assert fitted.rate in protocol.rates
    assert measures.details["classifier"] == fitted.describe()
    given = protocol.model_copy(update={"classifier": file}).measure(model, data, extractor)
    assert given.values == measures.values
    assert given.details["classifier"] == measures.details["classifier"]


def test_images_are_cut_to_whole_patches_only_where_they_must(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    file = kept(tmp_path / "c.safetensors", model, TWELVE)
    protocol = BackgroundReliance(classifier=file)
    data = published(tmp_path / "30", {"original": 1}, size=30)
    assert "images of 30 pixels were cropped to the central 24" in str(
        protocol.measure(model, data, extractor).notes
    )
    other = tmp_path / "30" / "original" / "val" / KINDS[4] / "0.png"
    tint(4, 0, 40).save(other)
    mixed = protocol.measure(model, Backgrounds().open(tmp_path / "30"), extractor)
    assert "original are not squares of one size" in mixed.notes[-1]
    resized = protocol.model_copy(update={"resize": True}).measure(model, data, extractor)
    assert "squares" not in str(resized.notes)
    assert "cut" not in str(resized.notes)


def test_an_unreadable_picture_is_left_out(
    model: FrozenModel,
    extractor: FeatureExtractor,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = published(tmp_path / "in9", {"original": 1})
    (tmp_path / "in9" / "original" / "val" / KINDS[2] / "0.png").write_bytes(b"nothing")
    file = kept(tmp_path / "c.safetensors", model, TWELVE)
    numbers = BackgroundReliance(classifier=file).measure(model, data, extractor).values
    assert "1 of 9 images" in caplog.text
    assert (numbers["backgrounds.original"] * 8 / 100) == pytest.approx(
        round(numbers["backgrounds.original"] * 8 / 100)
    )


def test_kinds_without_a_training_image_are_said(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    data = published(tmp_path / "in9", {"original": 1}, train=2)
    assert data.train is not None
    assert data.train.labels is not None
    fewer = data.train.subset(np.flatnonzero(data.train.labels > 1))
    measures = BackgroundReliance(epochs=2).measure(model, replace(data, train=fewer), extractor)
    assert "original/train has no image of 00_dog, 01_bird" in measures.notes


def test_what_cannot_be_judged_is_refused_in_one_line_before_an_image_is_read(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = published(tmp_path / "in9", {"original": 1})

    def never(*_: object) -> None:
        raise AssertionError("an image was read")

    monkeypatch.setattr("attmask.evaluation.protocols.backgrounds.common_side", never)
    monkeypatch.setattr(FeatureExtractor, "features", never)

    def refused(data: ChangedBackgrounds, classes: Sequence[str] | None = None) -> str:
        file = None
        if classes is not None:
            file = kept(tmp_path / f"{len(classes)}.safetensors", model, classes)
        with pytest.raises(UserError) as caught:
            BackgroundReliance(classifier=file).measure(model, data, extractor)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "no original/train to fit" in refused(data)
    assert "has 12 classes, but" in refused(replace(data, kind_of=None), TWELVE)
    assert "has 5 classes, but in_to_in9.json has 12" in refused(data, TWELVE[:5])
    assert "one is n0 instead of 00_dog" in refused(data, TWELVE[:9])
    protocol = BackgroundReliance(classifier=tmp_path / "12.safetensors", image_size=64)
    with pytest.raises(UserError, match=r"image_size=64 was given, but .* crops of 32 pixels"):
        protocol.measure(model, data, extractor)


def test_rates_that_overflow_can_be_replaced_as_the_error_says(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    data = published(tmp_path / "in9", {"original": 1}, train=2)
    with torch.no_grad():
        dict(model.backbone.named_parameters())["vit.norm.weight"].mul_(1e11)
    protocol = BackgroundReliance(epochs=2, rates=(1e30,))
    with pytest.raises(UserError, match=r"rates=\[1e-5,1e-4\]"):
        protocol.measure(model, data, extractor)
    smaller = protocol.model_copy(update={"rates": (1e-5, 1e-4)})
    assert smaller.measure(model, data, extractor).details["classifier"]["rate"] in smaller.rates


@needs("in9_val128")
def test_real_images_go_through_a_thousand_way_classifier(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    data = Backgrounds().open(FOLDER / "in9_val128")
    source = data.tests["original"]
    few = replace(data, tests={"original": first_per_class(source, 3)})
    names = [str(number) for number in range(1000)]
    file = kept(tmp_path / "c.safetensors", model, names)
    measures = BackgroundReliance(classifier=file).measure(model, few, extractor)
    assert 0 <= measures.values["backgrounds.original"] <= 100
    assert "1000 classes; the 630 outside" in measures.notes[0]
    assert len(measures.notes) == 2  # 128 pixels are whole patches; seven variants are missing
    # One that always answers with a class of the kind of the first images is right for a ninth.
    assert few.kind_of is not None
    weight = torch.zeros(1000, 24)
    file = kept(tmp_path / "dogs.safetensors", model, names, weight)
    found = LinearClassifier.load(file, network=model.digest)
    found.bias[few.kind_of.index(0)] = 1
    found.save(file)
    numbers = BackgroundReliance(classifier=file).measure(model, few, extractor).values
    assert numbers["backgrounds.original"] == pytest.approx(100 / 9)
