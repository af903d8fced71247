from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from sklearn.linear_model import LogisticRegression

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation import linear_cached
from attmask.evaluation.bench import Bench
from attmask.evaluation.classifier import LinearClassifier, accuracy
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.encoding import CentreCrop, Reading
from attmask.evaluation.features import Features
from attmask.evaluation.linear_cached import (
    CachedBatches,
    LinearCached,
    fit_classifier,
    train_on_features,
)
from attmask.evaluation.subject import Subject
from tests.evaluation.subjects import CPU, bench_in, tiny_subject

SETTINGS = LinearCached(epochs=4, batch_size=20, rates=(0.01, 0.1))


@pytest.fixture(scope="module")
def subject() -> Subject:
    return tiny_subject()


@pytest.fixture(scope="module")
def split(scenes: Path) -> Split:
    return Labelled().open(scenes)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return bench_in(tmp_path)


def clouds(images: int, classes: int, *, apart: float, seed: int = 0) -> Features:
    """Points around one centre for each class."""
    centres = torch.randn(classes, 6, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(images) % classes
    noise = torch.randn(images, 6, generator=torch.Generator().manual_seed(seed))
    return Features(apart * centres[labels] + noise, labels)


def fit(subject: Subject, train: Source, bench: Bench) -> LinearClassifier:
    return fit_classifier(
        subject, train, bench, reading=Reading(blocks=2), image_size=32, settings=SETTINGS
    )


def test_each_epoch_shows_every_image_once_plain_or_mirrored() -> None:
    images = 400
    number = torch.arange(images, dtype=torch.float32)[:, None]
    labels = torch.arange(images) % 7
    plain, flipped = Features(number, labels), Features(-1 - number, labels)
    batches = CachedBatches(plain, flipped, torch.arange(images), 64, seed=0)
    assert batches.steps == 7
    mirrored = []
    for epoch in range(2):
        vectors, seen = (torch.cat(part) for part in zip(*batches.epoch(epoch), strict=True))
        shown = torch.where(vectors < 0, -1 - vectors, vectors).flatten().long()
        assert sorted(shown.tolist()) == list(range(images))
        assert torch.equal(labels[shown], seen)
        mirrored.append(set(shown[vectors.flatten() < 0].tolist()))
    assert all(150 < len(few) < 250 for few in mirrored)
    assert len(mirrored[0] & mirrored[1]) < 150, "drawn anew in each epoch"


def test_without_mirror_images_only_the_features_are_shown_and_stay_as_they_are() -> None:
    plain = clouds(10, 2, apart=1.0)
    before = plain.vectors.clone()
    batches = CachedBatches(plain, None, torch.tensor([1, 3, 5]), 2, seed=0)
    shown = torch.cat([vectors for vectors, _ in batches.epoch(0)])
    assert {tuple(row) for row in shown.tolist()} == {tuple(before[i].tolist()) for i in (1, 3, 5)}
    mirrored = CachedBatches(plain, Features(before * 0, plain.labels), torch.arange(10), 4, seed=0)
    assert any(bool((vectors == 0).all(dim=1).any()) for vectors, _ in mirrored.epoch(0))
    assert torch.equal(plain.vectors, before)


def test_on_separable_features_it_says_what_logistic_regression_says() -> None:
    known, asked = clouds(200, 4, apart=6.0), clouds(100, 4, apart=6.0, seed=1)
    judge = LogisticRegression().fit(known.vectors.numpy(), known.labels)
    settings = LinearCached(rates=(0.1,), batch_size=256)
    probes, curve = train_on_features(
        known, None, 4, settings=settings, seed=0, device=CPU, test=asked
    )
    scores = asked.vectors @ probes.each[0].weight.T + probes.each[0].bias
    assert scores.argmax(dim=1).tolist() == judge.predict(asked.vectors.numpy()).tolist()
    assert len(curve) == settings.epochs
    assert curve[-1][0] is not None
    assert curve[-1][0].top1 == 100


def test_on_overlapping_features_it_is_about_as_often_right_as_logistic_regression() -> None:
    known, asked = clouds(600, 3, apart=0.6), clouds(600, 3, apart=0.6, seed=1)
    judge = LogisticRegression(C=1e6).fit(known.vectors.numpy(), known.labels)
    probes, _ = train_on_features(
        known, None, 3, settings=LinearCached(batch_size=128), seed=0, device=CPU
    )
    expected = 100 * judge.score(asked.vectors.numpy(), asked.labels)
    assert 60 < expected < 95
    best = max(found.top1 for found in probes.accuracies(asked) if found is not None)
    assert best == pytest.approx(expected, abs=2)


def test_the_numbers_are_those_of_the_classifier_that_is_kept(
    subject: Subject, split: Split, bench: Bench
) -> None:
    found = SETTINGS.measure(subject, split, bench)
    assert next(iter(found.numbers)) == "top-1, best epoch"
    file = Path(found.details["classifier"])
    classifier = LinearClassifier.load(file, network=subject.digest)
    assert file.name.startswith("linear-cached-")
    assert (classifier.reading, classifier.image_size) == (Reading(blocks=2), 32)
    test = bench.features(subject, split.test, CentreCrop(32, classifier.reading))
    assert accuracy(classifier, test).top1 == found.numbers["top-1, last epoch"]
    assert any("the network has only 2" in note for note in found.notes)
    assert SETTINGS.measure(subject, split, bench) == found
    SETTINGS.measure(subject, split, replace(bench, seed=1))
    trainings = [folder.name for folder in (bench.cache / "probes").iterdir()]
    assert len(trainings) == 2, "another seed is another training"


def test_mirror_images_are_read_only_where_they_are_wanted(
    subject: Subject, split: Split, bench: Bench
) -> None:
    LinearCached(epochs=1, flips=False).measure(subject, split, bench)
    assert len([*bench.cache.glob("*/vectors.npy")]) == 2
    LinearCached(epochs=1).measure(subject, split, bench)
    assert len([*bench.cache.glob("*/vectors.npy")]) == 3


def test_the_defaults_are_the_papers() -> None:
    paper = LinearCached()
    assert (paper.epochs, paper.batch_size) == (50, 1024)
    assert 0.01 in [rate * paper.batch_size / 256 for rate in paper.rates]


def test_a_classifier_is_fitted_once_for_a_network_data_and_settings(
    subject: Subject, split: Split, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fit(subject, split.train, bench)
    train = Mock(wraps=train_on_features)
    monkeypatch.setattr(linear_cached, "train_on_features", train)
    again = fit(subject, split.train, bench)
    assert not train.called
    assert torch.equal(again.weight, first.weight)
    assert again.classes == first.classes == tuple(split.train.classes)
    (file,) = (bench.cache / "classifiers").iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    assert torch.equal(fit(subject, split.train, bench).weight, first.weight)
    rates = [len(call.kwargs["settings"].rates) for call in train.call_args_list]
    assert rates == [2, 1], "damaged: fitted anew"
    fit(subject, split.train.subset(range(1, 48)), bench)
    fit(subject, split.train, replace(bench, seed=1))
    assert len([*(bench.cache / "classifiers").iterdir()]) == 3


def test_held_out_images_choose_the_rate_and_all_images_then_train(
    subject: Subject, split: Split, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = Mock(wraps=train_on_features)
    monkeypatch.setattr(linear_cached, "train_on_features", train)
    fit(subject, split.train, bench)
    choosing, final = (call.kwargs for call in train.call_args_list)
    learned = choosing["rows"].tolist()
    assert split.train.labels is not None
    held = split.train.labels[[i for i in range(48) if i not in learned]].tolist()
    assert sorted(held) == list(range(len(split.train.classes))), "one of each class"
    assert "rows" not in final


@pytest.mark.parametrize("rates", [(1e-9, 0.1), (0.1, 1e-9)])
def test_the_classifier_has_the_rate_that_is_right_most_often(
    rates: tuple[float, float],
    subject: Subject,
    split: Split,
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = clouds(len(split.train), len(split.train.classes), apart=6.0)
    monkeypatch.setattr(linear_cached, "_both", lambda *_: (known, None))
    settings = LinearCached(epochs=20, batch_size=20, rates=rates)
    fitted = fit_classifier(
        subject, split.train, bench, reading=Reading(), image_size=32, settings=settings
    )
    assert accuracy(fitted, known).top1 == 100


def test_very_few_images_are_enough_for_a_classifier(
    subject: Subject, split: Split, bench: Bench
) -> None:
    fitted = fit(subject, split.train.subset([0]), bench)
    assert fitted.weight.shape == (len(split.train.classes), 48)


def test_images_without_labels_are_refused(subject: Subject, split: Split, bench: Bench) -> None:
    with pytest.raises(UserError, match="have no labels"):
        fit(subject, replace(split.train, labels=None, classes=()), bench)
