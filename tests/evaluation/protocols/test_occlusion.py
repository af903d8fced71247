import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from safetensors.torch import save_file

from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier, class_indices
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.crops import crop_pixels
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import normalise
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols import occlusion
from attmask.evaluation.protocols.occlusion import Occlusion, ranked_by
from attmask.hardware import Precision
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from tests.evaluation.reporting.test_table import CARD

CPU = torch.device("cpu")
TINY = BackboneConfig(name="vit_tiny_patch16_224", width=24, depth=2, heads=2, patch_size=8)
FAST: dict[str, Any] = {"ratios": (0.0, 0.01, 0.5), "epochs": 3}


def shaken(config: BackboneConfig, seed: int, size: int = 32) -> Backbone:
    torch.manual_seed(seed)
    backbone = build_backbone(config, image_size=size, channels=3)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return backbone


@pytest.fixture(autouse=True)
def _undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of the time would go into pictures that nobody looks at."""
    if "plot" not in request.node.name:
        monkeypatch.setattr(occlusion, "draw_curves", lambda _, file, **__: file)


@pytest.fixture
def model() -> FrozenModel:
    return FrozenModel("tiny", shaken(TINY, 0), 32, DataConfig())


@pytest.fixture
def extractor(tmp_path: Path) -> FeatureExtractor:
    return FeatureExtractor(CPU, Precision.choose("fp32", CPU), tmp_path / "cache")


@pytest.fixture
def reference(tmp_path: Path) -> str:
    """A file of another network, with larger patches."""
    vit = shaken(TINY.model_copy(update={"patch_size": 16}), 1).vit
    weights = {name: tensor.contiguous() for name, tensor in vit.state_dict().items()}
    save_file(weights, tmp_path / "reference.safetensors", metadata={"heads": "2"})
    return str(tmp_path / "reference.safetensors")


@pytest.fixture
def data(scenes: Path) -> Split:
    return Labelled().open(scenes)


def plain_top1(
    model: FrozenModel, data: Split, classifier: LinearClassifier, reference: str, ratio: float
) -> float:
    """Picture after picture, each patch of the reference painted black by itself."""
    watcher = load_model(reference).backbone
    right = 0
    assert data.test.labels is not None
    for i in range(len(data.test)):
        crop = crop_pixels(np.asarray(Image.open(data.test.place(i)).convert("RGB")), 32)
        with torch.no_grad():
            seen = normalise(crop[None], model.data.mean, model.data.std)
            attention = watcher(seen).attention[0].tolist()
        by_attention = sorted(range(len(attention)), key=lambda n: -attention[n])
        for patch in by_attention[: int(len(attention) * ratio)]:
            row, col = divmod(patch, 2)
            crop[:, 16 * row : 16 * row + 16, 16 * col : 16 * col + 16] = 0
        with torch.no_grad():
            shown = normalise(crop[None], model.data.mean, model.data.std)
            logits = classifier.logits(classifier.readout(model.backbone, shown))
        right += int(logits.argmax()) == data.test.labels[i]
    return 100 * right / len(data.test)


def test_accuracy_falls_out_as_when_each_picture_is_painted_by_hand(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str
) -> None:
    protocol = Occlusion(reference=reference, ratios=(0.0, 0.25, 0.5, 1.0), epochs=3)
    measures = protocol.measure(model, data, extractor)
    file = next((extractor.cache / "classifiers").glob("fitted-*.safetensors"))
    classifier = LinearClassifier.load(file, network=model.digest)
    for ratio in protocol.ratios:
        expected = plain_top1(model, data, classifier, reference, ratio)
        assert measures.values[f"occlusion.top1@{ratio:g}"] == pytest.approx(expected)
    assert measures.details["black patches"] == [0, 1, 2, 4]
    assert len(set(measures.details["top-1"])) > 1  # hiding something changes something
    name, mean = next(iter(measures.values.items()))
    assert name == "occlusion.top1"
    assert mean == pytest.approx(np.mean(measures.details["top-1"]))


def test_a_plot_is_drawn_and_named(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str
) -> None:
    measures = Occlusion(reference=reference, **FAST).measure(model, data, extractor)
    (file,) = measures.files
    assert file.parent == extractor.cache / "plots"
    assert Image.open(file).size == (1440, 900)


def test_without_a_plot_the_numbers_are_given_and_a_note_says_what_is_missing(
    model: FrozenModel,
    data: Split,
    extractor: FeatureExtractor,
    reference: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocol = Occlusion(reference=reference, **FAST)
    with_plot = protocol.measure(model, data, extractor)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    without = protocol.measure(model, data, extractor)
    assert without.values == with_plot.values
    assert without.files == ()
    assert "pip install matplotlib" in without.notes[-1]


def test_a_second_time_nothing_is_computed_again(
    model: FrozenModel,
    data: Split,
    extractor: FeatureExtractor,
    reference: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    protocol = Occlusion(reference=reference, **FAST)
    first = protocol.measure(model, data, extractor)

    def never(*_: object) -> None:
        raise AssertionError("extracted again")

    monkeypatch.setattr(FeatureExtractor, "_extract", never)
    assert protocol.measure(model, data, extractor) == first


def test_a_share_too_small_to_hide_a_patch_shares_the_features_of_whole_images(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str
) -> None:
    numbers = Occlusion(reference=reference, **FAST).measure(model, data, extractor).values
    assert numbers["occlusion.top1@0.01"] == numbers["occlusion.top1@0"]
    # Train plain and flipped, test plain and half black, and the reference's attention.
    assert len(list(extractor.cache.glob("*/*/values.npy"))) == 5


def test_an_unreadable_image_does_not_shift_the_attention_of_the_others(
    model: FrozenModel, scenes: Path, extractor: FeatureExtractor, reference: str, tmp_path: Path
) -> None:
    shutil.copytree(scenes, tmp_path / "damaged")
    whole = Labelled().open(scenes).test
    source = Labelled().open(tmp_path / "damaged").test
    Path(source.place(3)).write_bytes(b"no picture")
    watcher = load_model(reference)
    _, expected = ranked_by(watcher, whole, 32, extractor)
    read, ranks = ranked_by(watcher, source, 32, extractor)
    kept = [i for i in range(len(whole)) if i != 3]
    np.testing.assert_array_equal(ranks, expected[kept])
    assert [read.name(i) for i in range(len(read))] == [whole.name(i) for i in kept]


def test_a_classifier_from_a_file_is_asked_as_it_was_trained(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str, tmp_path: Path
) -> None:
    fitted = Occlusion(reference=reference, **FAST).measure(model, data, extractor)
    file = next((extractor.cache / "classifiers").glob("fitted-*.safetensors"))
    given = Occlusion(reference=reference, ratios=FAST["ratios"], classifier=file)
    measures = given.measure(model, data, extractor)
    assert measures.values == fitted.values
    assert measures.details["classifier"] == fitted.details["classifier"]
    known = LinearClassifier.load(file, network=model.digest)
    assert known.rate in given.rates
    assert measures.details["classifier"] == known.describe()
    with pytest.raises(UserError, match=r"image_size=64 was given, but .* crops of 32 pixels"):
        given.model_copy(update={"image_size": 64}).measure(model, data, extractor)
    other = replace(model, backbone=shaken(TINY, 5))
    with pytest.raises(UserError, match="trained on network"):
        given.measure(other, data, extractor)


def test_a_wrong_reference_is_found_before_a_classifier_is_fitted(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    with pytest.raises(
        UserError, match=r"nowhere is not a checkpoint; give a run, .* or hf-hub:OWNER/NAME"
    ):
        Occlusion(reference=str(tmp_path / "nowhere")).check(model, data)
    assert not extractor.cache.exists()


def test_a_classifier_of_other_classes_is_found_before_an_image_is_read(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str, tmp_path: Path
) -> None:
    file = tmp_path / "other.safetensors"
    replace(classifier("ant", "bee"), network=model.digest).save(file)
    with pytest.raises(UserError, match="does not know"):
        Occlusion(reference=reference, classifier=file).measure(model, data, extractor)
    assert not extractor.cache.exists()


def test_rates_that_overflow_can_be_replaced_as_the_error_says(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str
) -> None:
    with torch.no_grad():
        dict(model.backbone.named_parameters())["vit.norm.weight"].mul_(1e11)
    protocol = Occlusion(reference=reference, rates=(1e30,), **FAST)
    with pytest.raises(UserError, match=r"rates=\[1e-5,1e-4\]"):
        protocol.measure(model, data, extractor)
    smaller = protocol.model_copy(update={"rates": (1e-5, 1e-4)})
    assert smaller.measure(model, data, extractor).details["classifier"]["rate"] in smaller.rates


def test_the_card_counts_a_test_image_that_cannot_be_read(
    model: FrozenModel, scenes: Path, extractor: FeatureExtractor, reference: str, tmp_path: Path
) -> None:
    shutil.copytree(scenes, tmp_path / "damaged")
    data = Labelled().open(tmp_path / "damaged")
    Path(data.test.place(0)).write_bytes(b"no picture")
    numbers = Occlusion(reference=reference, **FAST).measure(model, data, extractor).values
    assert extractor.unreadable(data.test) == 1
    shown = len(data.test) - 1
    assert numbers["occlusion.top1@0.5"] * shown / 100 == pytest.approx(
        round(numbers["occlusion.top1@0.5"] * shown / 100)
    )


def classifier(*classes: str) -> LinearClassifier:
    return LinearClassifier(
        torch.zeros(len(classes), 24), torch.zeros(len(classes)), classes, Embedding(), 32, "x"
    )


def test_classes_are_matched_by_name(data: Split) -> None:
    names = list(data.test.classes)
    more = classifier("first", *reversed(names), "last")
    assert class_indices(more, data.test).tolist() == list(range(len(names), 0, -1))
    with pytest.raises(UserError, match=f"does not know 1 of the .* the first is {names[1]};"):
        class_indices(classifier(names[0], *names[2:]), data.test)


def test_a_class_that_was_never_learned_is_said(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str
) -> None:
    assert data.train.labels is not None
    fewer = replace(data, train=data.train.subset(np.flatnonzero(data.train.labels != 0)))
    measures = Occlusion(reference=reference, **FAST).measure(model, fewer, extractor)
    expected = f"without a training image: 1, the first is {data.train.classes[0]}"
    assert expected in measures.notes[0]
    assert "has only 2" in measures.notes[1]  # 4 blocks are read of larger networks


def test_one_test_image_will_do(
    model: FrozenModel, data: Split, extractor: FeatureExtractor, reference: str
) -> None:
    lone = replace(data, test=data.test.subset([0]))
    numbers = Occlusion(reference=reference, **FAST).measure(model, lone, extractor).values
    assert set(numbers.values()) <= {0.0, 100.0, *(100 * i / 3 for i in range(4))}


@pytest.mark.parametrize("ratios", [(0.5, 0.2), (0.1, 0.1), (), (0.5, 1.1), (-0.1,)])
def test_ratios_that_make_no_curve_are_refused(ratios: tuple[float, ...]) -> None:
    with pytest.raises(ValidationError):
        Occlusion(ratios=ratios)


def test_the_curves_of_several_cards_are_one_plot(tmp_path: Path) -> None:
    curve = {"ratios": [0.0, 0.5], "top-1": [50.0, 20.0]}
    cards = [replace(CARD, details=curve), replace(CARD, checkpoint="b", details=curve)]
    Occlusion().draw(cards, tmp_path / "both.png")
    assert Image.open(tmp_path / "both.png").size[0] > 500
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="no plot was drawn: cannot write the plot"):
        Occlusion().draw(cards, tmp_path / "file" / "x.png")
