from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.metrics.accuracy import accuracy
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes import fit as module
from attmask.evaluation.probes.cached import train_on_features
from attmask.evaluation.probes.fit import fit_classifier
from attmask.evaluation.protocols.linear_cached import LinearCached

SETTINGS = LinearCached(epochs=4, batch_size=20, rates=(0.01, 0.1))


def clouds(images: int, classes: int, *, apart: float, seed: int = 0) -> Features:
    """Points around one centre for each class."""
    centres = torch.randn(classes, 6, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(images) % classes
    noise = torch.randn(images, 6, generator=torch.Generator().manual_seed(seed))
    return Features(apart * centres[labels] + noise, labels)


def fit(model: FrozenModel, train: Source, extractor: FeatureExtractor) -> LinearClassifier:
    return fit_classifier(
        model, train, extractor, readout=Embedding(blocks=2), image_size=32, settings=SETTINGS
    )


def test_a_classifier_is_fitted_once_for_a_network_data_and_settings(
    model: FrozenModel, split: Split, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fit(model, split.train, extractor)
    train = Mock(wraps=train_on_features)
    monkeypatch.setattr(module, "train_on_features", train)
    again = fit(model, split.train, extractor)
    assert not train.called
    assert torch.equal(again.weight, first.weight)
    assert again.classes == first.classes == tuple(split.train.classes)
    (file,) = (extractor.cache / "classifiers").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert torch.equal(fit(model, split.train, extractor).weight, first.weight)
    rates = [len(call.kwargs["settings"].rates) for call in train.call_args_list]
    assert rates == [2, 1], "damaged: fitted again"
    fit(model, split.train.subset(range(1, 48)), extractor)
    fit(model, split.train, replace(extractor, seed=1))
    assert len([*(extractor.cache / "classifiers").iterdir()]) == 3
    more = replace(split.train, classes=(*split.train.classes, "zebra"))
    assert fit(model, more, extractor).classes[-1] == "zebra"


def test_held_out_images_choose_the_rate_and_all_images_then_train(
    model: FrozenModel, split: Split, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Mock(wraps=train_on_features)
    monkeypatch.setattr(module, "train_on_features", train)
    fit(model, split.train, extractor)
    choosing, final = (call.kwargs for call in train.call_args_list)
    learned = choosing["rows"].tolist()
    assert split.train.labels is not None
    held = split.train.labels[[i for i in range(48) if i not in learned]].tolist()
    assert sorted(held) == list(range(len(split.train.classes))), "one of each class"
    assert "rows" not in final


@pytest.mark.parametrize("rates", [(1e-9, 0.1), (0.1, 1e-9)])
def test_the_classifier_has_the_rate_that_is_right_most_often(
    rates: tuple[float, float],
    model: FrozenModel,
    split: Split,
    extractor: FeatureExtractor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = clouds(len(split.train), len(split.train.classes), apart=6.0)
    monkeypatch.setattr(module, "plain_and_flipped", lambda *_, **__: (known, None))
    settings = LinearCached(epochs=20, batch_size=20, rates=rates)
    fitted = fit_classifier(
        model, split.train, extractor, readout=Embedding(), image_size=32, settings=settings
    )
    assert accuracy(fitted, known).top1 == 100
    assert fitted.rate == 0.1


def test_very_few_images_are_enough_for_a_classifier(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    fitted = fit(model, split.train.subset([0]), extractor)
    assert fitted.weight.shape == (len(split.train.classes), 48)


def test_images_without_labels_are_refused(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    with pytest.raises(UserError, match="have no labels"):
        fit(model, replace(split.train, labels=None, classes=()), extractor)


@pytest.mark.parametrize("rates", [(1e30,), (1e30, 5e29)])
def test_rates_that_overflow_are_refused_and_nothing_is_kept(
    rates: tuple[float, ...],
    model: FrozenModel,
    split: Split,
    extractor: FeatureExtractor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large = clouds(len(split.train), len(split.train.classes), apart=1e11)
    monkeypatch.setattr(module, "plain_and_flipped", lambda *_, **__: (large, None))
    settings = LinearCached(epochs=2, rates=rates)
    with pytest.raises(UserError, match=r"the weights overflow at every learning rate .* rates="):
        fit_classifier(
            model, split.train, extractor, readout=Embedding(), image_size=32, settings=settings
        )
    assert not (extractor.cache / "classifiers").exists()
