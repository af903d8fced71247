from dataclasses import replace
from pathlib import Path

from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.metrics.accuracy import accuracy
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.linear_cached import LinearCached

SETTINGS = LinearCached(epochs=4, batch_size=20, rates=(0.01, 0.1))


def test_the_numbers_are_those_of_the_classifier_that_is_kept(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    found = SETTINGS.measure(model, split, extractor)
    assert next(iter(found.values)) == "linear_cached.top1"
    file = Path(found.details["classifier"])
    classifier = LinearClassifier.load(file, network=model.digest)
    assert file.name.startswith("linear-cached-")
    assert (classifier.readout, classifier.image_size) == (Embedding(blocks=2), 32)
    test = extractor.features(model, split.test, CenterCrop(32), classifier.readout)
    right = accuracy(classifier, test)
    assert (
        right.top1 == found.values["linear_cached.top1"] > found.values["linear_cached.top1_last"]
    )
    assert right.top5 == found.values["linear_cached.top5"]
    assert classifier.epoch == found.details["best epoch"]
    assert any("the network has only 2" in note for note in found.notes)
    assert SETTINGS.measure(model, split, extractor) == found
    SETTINGS.measure(model, split, replace(extractor, seed=1))
    trainings = [folder.name for folder in (extractor.cache / "probes").iterdir()]
    assert len(trainings) == 2, "another seed is another training"
    kept = LinearClassifier.load(file, network=model.digest)
    assert kept.digest == found.details["classifier sha256"], "which keeps a file of its own"
    assert kept.rate == found.values["linear_cached.rate"]
    assert len([*file.parent.iterdir()]) == 2


def test_flips_are_read_only_where_they_are_wanted(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    LinearCached(epochs=1, flips=False).measure(model, split, extractor)
    assert len([*extractor.cache.glob("*/*/values.npy")]) == 2
    LinearCached(epochs=1).measure(model, split, extractor)
    assert len([*extractor.cache.glob("*/*/values.npy")]) == 3


def test_the_defaults_are_the_papers() -> None:
    paper = LinearCached()
    on_places = paper.budget(2_448_873)
    assert (on_places.epochs, on_places.batch_size) == (50, 1024)
    assert 0.01 in [rate * 1024 / 256 for rate in paper.rates]
