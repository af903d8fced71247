import pytest
import torch
from sklearn.linear_model import LogisticRegression

from attmask.data.source import Source
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import CLS, Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.cached import (
    CachedBatches,
    CachedProbe,
    paired,
    plain_and_flipped,
    train_on_features,
)
from tests.evaluation.models import CPU

SETTINGS = CachedProbe(epochs=4, batch_size=20, rates=(0.01, 0.1))


def clouds(images: int, classes: int, *, apart: float, seed: int = 0) -> Features:
    """Points around one centre for each class."""
    centres = torch.randn(classes, 6, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(images) % classes
    noise = torch.randn(images, 6, generator=torch.Generator().manual_seed(seed))
    return Features(apart * centres[labels] + noise, labels)


def test_each_epoch_shows_every_image_once_plain_or_flipped() -> None:
    images = 400
    number = torch.arange(images, dtype=torch.float32)[:, None]
    labels = torch.arange(images) % 7
    plain, flipped = Features(number, labels), Features(-1 - number, labels)
    batches = CachedBatches(plain, flipped, torch.arange(images), 64, seed=0)
    assert len([*batches.epoch(0)]) == 7
    flips = []
    for epoch in range(2):
        vectors, seen = (torch.cat(part) for part in zip(*batches.epoch(epoch), strict=True))
        shown = torch.where(vectors < 0, -1 - vectors, vectors).flatten().long()
        assert sorted(shown.tolist()) == list(range(images))
        assert torch.equal(labels[shown], seen)
        flips.append(set(shown[vectors.flatten() < 0].tolist()))
    assert all(150 < len(few) < 250 for few in flips)
    assert len(flips[0] & flips[1]) < 150, "drawn again in each epoch"


def numbered(images: int, rows: list[int] | None, sign: int) -> Features:
    """Features that tell their image: its number, or less than nothing for a flipped image."""
    shown = torch.arange(images) if rows is None else torch.tensor(rows)
    vectors = (sign * (1.0 + shown))[:, None]
    return Features(vectors, shown % 3, None if rows is None else shown)


@pytest.mark.parametrize(
    ("plain", "flipped", "both"),
    [
        (None, [0, 1, 3, 4], [0, 1, 3, 4]),
        ([0, 2, 3, 4], None, [0, 2, 3, 4]),
        ([0, 2, 3, 4], [0, 1, 3, 4], [0, 3, 4]),
        ([1, 2], [1, 2], [1, 2]),
        (None, None, [0, 1, 2, 3, 4]),
    ],
)
def test_a_crop_and_its_flip_are_of_one_image(
    plain: list[int] | None, flipped: list[int] | None, both: list[int]
) -> None:
    first, second = paired(numbered(5, plain, 1), numbered(5, flipped, -1))
    assert first.vectors.flatten().tolist() == [1 + i for i in both]
    assert second.vectors.flatten().tolist() == [-1 - i for i in both]
    for features in (first, second):
        assert features.labels is not None
        assert features.labels.tolist() == [i % 3 for i in both]
        assert features.rows is None or features.rows.tolist() == both


def test_features_of_the_same_images_are_not_copied() -> None:
    plain, flipped = numbered(5, [0, 2, 4], 1), numbered(5, [0, 2, 4], -1)
    first, second = paired(plain, flipped)
    assert first is plain
    assert second is flipped


def test_an_image_that_was_read_only_once_does_not_shift_the_others(
    model: FrozenModel, split: Split, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_crop, flipped_crop = CenterCrop(32), CenterCrop(32, flipped=True)
    whole = [extractor.features(model, split.train, e) for e in (plain_crop, flipped_crop)]
    features_of = FeatureExtractor.features

    def without_the_third(
        extractor: FeatureExtractor,
        model: FrozenModel,
        source: Source,
        crop: CenterCrop,
        readout: Embedding,
        about: str,
    ) -> Features:
        found = features_of(extractor, model, source, crop, readout, about)
        if crop.flipped:
            return found
        assert found.labels is not None
        kept = torch.tensor([i for i in range(len(source)) if i != 3])
        return Features(found.vectors[kept], found.labels[kept], kept)

    monkeypatch.setattr(FeatureExtractor, "features", without_the_third)
    plain, flipped = plain_and_flipped(model, split.train, extractor, plain_crop, CLS, flips=True)
    kept = [i for i in range(len(split.train)) if i != 3]
    assert flipped is not None
    for found, expected in zip((plain, flipped), whole, strict=True):
        assert expected.labels is not None
        assert found.labels is not None
        assert torch.equal(found.vectors, expected.vectors[kept])
        assert torch.equal(found.labels, expected.labels[kept])


def test_without_flips_only_the_features_are_shown_and_stay_as_they_are() -> None:
    plain = clouds(10, 2, apart=1.0)
    before = plain.vectors.clone()
    batches = CachedBatches(plain, None, torch.tensor([1, 3, 5]), 2, seed=0)
    shown = torch.cat([vectors for vectors, _ in batches.epoch(0)])
    assert {tuple(row) for row in shown.tolist()} == {tuple(before[i].tolist()) for i in (1, 3, 5)}
    half_flipped = CachedBatches(
        plain, Features(before * 0, plain.labels), torch.arange(10), 4, seed=0
    )
    assert any(bool((vectors == 0).all(dim=1).any()) for vectors, _ in half_flipped.epoch(0))
    assert torch.equal(plain.vectors, before)


def test_on_separable_features_it_says_what_logistic_regression_says() -> None:
    known, asked = clouds(200, 4, apart=6.0), clouds(100, 4, apart=6.0, seed=1)
    judge = LogisticRegression().fit(known.vectors.numpy(), known.labels)
    settings = CachedProbe(rates=(0.1,), batch_size=256, epochs=50)
    probes, curve = train_on_features(
        known, None, 4, settings=settings, seed=0, device=CPU, test=asked
    )
    logits = asked.vectors @ probes.each[0].weight.T + probes.each[0].bias
    assert logits.argmax(dim=1).tolist() == judge.predict(asked.vectors.numpy()).tolist()
    assert len(curve) == 50
    assert curve[-1][0] is not None
    assert curve[-1][0].top1 == 100


def test_on_overlapping_features_it_is_about_as_often_right_as_logistic_regression() -> None:
    known, asked = clouds(600, 3, apart=0.6), clouds(600, 3, apart=0.6, seed=1)
    judge = LogisticRegression(C=1e6).fit(known.vectors.numpy(), known.labels)
    probes, _ = train_on_features(
        known, None, 3, settings=CachedProbe(batch_size=128, epochs=50), seed=0, device=CPU
    )
    expected = 100 * judge.score(asked.vectors.numpy(), asked.labels)
    assert 60 < expected < 95
    best = max(found.top1 for found in probes.accuracies(asked) if found is not None)
    assert best == pytest.approx(expected, abs=2)


def test_few_images_are_learned_as_well_as_logistic_regression_learns_them() -> None:
    """Wide features of many classes, as networks give them: the paper's batch makes 50 steps."""
    draw = torch.Generator().manual_seed(0)
    centres = torch.randn(37, 64, generator=draw)
    scale = torch.logspace(0.7, -1, 64)  # few directions are strong, and many matter

    def some(images: int) -> Features:
        labels = torch.arange(images) % 37
        vectors = centres[labels] + 1.2 * torch.randn(images, 64, generator=draw)
        return Features(vectors * scale, labels)

    known, asked = some(740), some(1480)
    judge = LogisticRegression(C=10.0, max_iter=2000).fit(known.vectors.numpy(), known.labels)
    expected = 100 * judge.score(asked.vectors.numpy(), asked.labels)
    best = []
    for settings in (CachedProbe(), CachedProbe(batch_size=1024, epochs=50)):
        few = settings.model_copy(update={"rates": (0.005, 0.02, 0.1)})
        probes, _ = train_on_features(known, None, 37, settings=few, seed=0, device=CPU)
        best.append(max(a.top1 for a in probes.accuracies(asked) if a is not None))
    assert 60 < expected < 95
    assert best[0] > expected - 1
    assert best[1] < expected - 2, "so few steps are not enough, or this would show nothing"
