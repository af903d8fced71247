"""The linear probe on features extracted once: of the centre crop and of its mirror image.

The paper's way for Places205. Each epoch draws one of both for every image.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from pydantic import PositiveFloat
from torch import Tensor

from attmask import distributed
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.bench import Bench
from attmask.evaluation.cache import FeatureCache
from attmask.evaluation.classifier import LinearClassifier, fitting_reading
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.encoding import CentreCrop, Reading
from attmask.evaluation.features import Features
from attmask.evaluation.linear import keep_classifier, report, scaled
from attmask.evaluation.probe import Batch, Curve, Probes, choose, order, share_of, train
from attmask.evaluation.subject import Subject
from attmask.evaluation.task import Measures
from attmask.randomness import uniform
from attmask.settings import Config, setting

log = logging.getLogger(__name__)

_VERSION = 1  # counts whenever the same settings give other numbers: what was kept is then stale
_HELD_OUT = 0.1  # of each class: they tell the learning rates apart where no test image may


class LinearCached(Config):
    """The paper's probe for Places205: cached features, flips only."""

    epochs: int = setting(50, "passes over the features", paper="50", ge=1)
    batch_size: int = setting(1024, "images a step, of all processes", paper="1024", ge=1)
    rates: tuple[PositiveFloat, ...] = setting(
        (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1),
        "learning rates for 256 images a step, one classifier each",
        paper="0.0025 (0.01 at batch 1024)",
        min_length=1,
    )
    reading: Reading = setting(
        Reading(blocks=4),
        "what is read of the network",
        paper="not said for Places205; linear: [CLS] of the last 4 blocks",
    )
    flips: bool = setting(True, "whether mirror images are learned from too", paper="true")
    image_size: int | None = setting(
        None, "side of a crop in pixels (null: the network's)", paper="224", ge=1
    )

    def measure(self, subject: Subject, data: Split, bench: Bench) -> Measures:
        """Train on the one part, and test on the other after every epoch."""
        reading, notes = fitting_reading(self.reading, subject.backbone)
        size = self.image_size or subject.image_size
        encoding = CentreCrop(size, reading)
        plain, flipped = _both(subject, data.train, bench, encoding, self)
        test = bench.features(subject, data.test, encoding, "test images")
        trained_on = bench.key(subject, data.train, encoding)
        key = {
            "linear-cached": _VERSION,
            "settings": self.model_dump(mode="json"),
            "seed": bench.seed,
            "train": trained_on,
            "test": bench.key(subject, data.test, encoding),
        }
        probes, curve = train_on_features(
            plain,
            flipped,
            data.classes,
            settings=self,
            seed=bench.seed,
            device=bench.device,
            test=test,
            keep=FeatureCache(bench.cache / "probes").place(key),
        )
        chosen = choose(curve, self.rates)
        network, images = trained_on["network"], trained_on["images"]
        name = f"linear-cached-{network[:16]}-{images[:16]}.safetensors"
        classifier = LinearClassifier(
            weight=probes.each[chosen.index].weight,
            bias=probes.each[chosen.index].bias,
            classes=tuple(data.train.classes),
            reading=reading,
            image_size=size,
            network=network,
        )
        file = keep_classifier(classifier, bench, name)
        return report(curve, chosen, self.rates, data, notes, file)


PLACES = LinearCached()


@dataclass(frozen=True, eq=False)
class CachedBatches:
    """Rows of features in a new order each epoch, each of the crop or of its mirror image."""

    plain: Features
    flipped: Features | None
    rows: Int[Tensor, "m"]
    batch_size: int
    seed: int

    @property
    def steps(self) -> int:
        """The number of batches in an epoch."""
        return -(-len(self.rows) // self.batch_size)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """This process's share of every batch, read from the disk when its turn comes."""
        assert self.plain.labels is not None
        size, seed = self.batch_size, self.seed
        for batch in order(len(self.rows), batch_size=size, seed=seed, epoch=epoch):
            rows = self.rows[share_of(batch)]
            vectors = self.plain.vectors[rows]
            if self.flipped is not None:
                mirrored = uniform("mirrored features", seed, epoch, rows) < 0.5
                vectors[mirrored] = self.flipped.vectors[rows[mirrored]]
            yield vectors, self.plain.labels[rows]


def train_on_features(
    plain: Features,
    flipped: Features | None,
    classes: int,
    *,
    settings: LinearCached,
    seed: int,
    device: torch.device,
    rows: Int[Tensor, "m"] | None = None,
    test: Features | None = None,
    keep: Path | None = None,
) -> tuple[Probes, Curve]:
    """Train a classifier for each rate on all features or on some rows of them.

    With `test`, the curve has the accuracy after each epoch; with `keep`, a folder for exactly
    this training, it goes on where it was stopped.
    """
    rows = torch.arange(len(plain.vectors)) if rows is None else rows
    probes = Probes(
        scaled(settings.rates, settings.batch_size),
        classes=classes,
        width=plain.vectors.shape[1],
        epochs=settings.epochs,
        seed=seed,
        device=device,
    )
    batches = CachedBatches(plain, flipped, rows, settings.batch_size, seed)
    return probes, train(probes, batches.epoch, batches.steps, test, keep)


def fit_classifier(
    subject: Subject,
    train: Source,
    bench: Bench,
    *,
    reading: Reading,
    image_size: int,
    settings: LinearCached = PLACES,
) -> LinearClassifier:
    """A classifier for tasks that need one, trained once for each network, data and settings.

    No test image is looked at: a tenth of the training images of each class chooses the learning
    rate, and then all of them train the classifier.
    """
    if train.labels is None:
        raise UserError(f"the images of {train.root} have no labels; use one sub-folder a class")
    reading, _ = fitting_reading(reading, subject.backbone)
    encoding = CentreCrop(image_size, reading)
    network = subject.digest
    key = {
        "fit": _VERSION,
        "settings": settings.model_dump(mode="json", exclude={"reading", "image_size"}),
        "seed": bench.seed,
        "train": bench.key(subject, train, encoding),
    }
    place = FeatureCache(bench.cache).place(key).name
    name = f"fitted-{network[:16]}-{place[:16]}.safetensors"
    known = _load(bench.cache / "classifiers" / name, network)
    if distributed.all_agree(known is not None) and known is not None:
        return known
    plain, flipped = _both(subject, train, bench, encoding, settings)
    index = _best_rate(plain, flipped, train, settings, bench)
    alone = settings.model_copy(update={"rates": (settings.rates[index],)})
    probes, _ = train_on_features(
        plain, flipped, len(train.classes), settings=alone, seed=bench.seed, device=bench.device
    )
    fitted = LinearClassifier(
        # On the CPU, as it will be when it is read again: the same numbers both times.
        weight=probes.each[0].weight.cpu(),
        bias=probes.each[0].bias.cpu(),
        classes=tuple(train.classes),
        reading=reading,
        image_size=image_size,
        network=network,
    )
    keep_classifier(fitted, bench, name)
    return fitted


def _best_rate(
    plain: Features, flipped: Features | None, train: Source, settings: LinearCached, bench: Bench
) -> int:
    """Which learning rate is best on held-out images when the others are learned from."""
    if len(settings.rates) == 1:
        return 0
    assert plain.labels is not None
    # The rows of the features take the place of the images, some of which may be unreadable.
    rows = np.arange(len(plain.labels), dtype=np.int64)
    everything = replace(train, rows=rows, labels=plain.labels.numpy())
    learned, asked = (torch.from_numpy(p.rows) for p in everything.split_holdout(_HELD_OUT))
    if len(asked) == 0:
        log.warning("no class has two images to hold one out; all of them choose the learning rate")
        asked = learned
    probes, _ = train_on_features(
        plain,
        flipped,
        len(train.classes),
        settings=settings,
        seed=bench.seed,
        device=bench.device,
        rows=learned,
    )
    return choose([probes.accuracies(plain, asked)], settings.rates).index


def _both(
    subject: Subject, train: Source, bench: Bench, encoding: CentreCrop, settings: LinearCached
) -> tuple[Features, Features | None]:
    """Features of the training images, and of their mirror images where these are wanted."""
    plain = bench.features(subject, train, encoding, "training images")
    if not settings.flips:
        return plain, None
    mirror = CentreCrop(encoding.size, encoding.reading, flipped=True)
    return plain, bench.features(subject, train, mirror, "mirrored training images")


def _load(file: Path, network: str) -> LinearClassifier | None:
    """What was fitted before, if it is there and whole."""
    if not file.is_file():
        return None
    try:
        return LinearClassifier.load(file, network=network)
    except UserError as fault:
        log.warning("%s; it is fitted anew", fault)
        return None
