"""The linear probe on features extracted once: of the centre crop and of its mirror image.

The paper's way for Places205. Each epoch draws one of both for every image.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from pydantic import PositiveFloat
from torch import Tensor

from attmask.data.source import Source
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import CenterCrop, Reading
from attmask.evaluation.features.store import FeatureCache
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.budget import Budget, training_budget
from attmask.evaluation.probes.classifier import LinearClassifier, fitting_reading
from attmask.evaluation.probes.report import PaperRate, keep_classifier, report
from attmask.evaluation.probes.training import (
    Batch,
    Curve,
    Probes,
    choose,
    order,
    share_of,
    train,
)
from attmask.evaluation.protocols.linear import scaled
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.randomness import uniform
from attmask.settings import Config, setting

# Counts whenever the same settings give other numbers: what was kept is then stale. The versions
# of the tasks in catalog.py must be raised with it.
_VERSION = 2

PAPER = PaperRate(0.01, batch_size=1024)
PAPER_EPOCHS = 50


class LinearCached(Config):
    """The paper's probe for Places205: cached features, flips only."""

    epochs: int | None = setting(
        None,
        "passes over the features (null: 50, more where these make fewer than 1,000 steps of 32)",
        paper="50",
        ge=1,
    )
    batch_size: int | None = setting(
        None,
        "images a step, of all processes (null: 1024, less where it would make fewer than 1,000 "
        "steps)",
        paper="1024",
        ge=1,
    )
    rates: tuple[PositiveFloat, ...] = setting(
        (0.0005, 0.001, PAPER.for_256, 0.005, 0.01, 0.02, 0.05, 0.1),
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

    def check(self, model: FrozenModel, data: Split) -> None:
        """Whether there are images to learn from and the crops consist of whole patches."""
        check_images(data.train, data.test)
        check_crop(model, self.image_size)

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """Train on the one part, and test on the other after every epoch."""
        reading, notes = fitting_reading(self.reading, model.backbone)
        size = self.image_size or model.image_size
        encoding = CenterCrop(size, reading)
        plain, flipped = both_ways(model, data.train, extractor, encoding, self)
        test = extractor.features(model, data.test, encoding, "test images")
        budget = self.budget(len(plain.vectors))
        key = {
            "linear-cached": _VERSION,
            "settings": self.model_dump(mode="json"),
            "training": budget.describe(),
            "seed": extractor.seed,
            "classes": list(data.train.classes),
            "train": extractor.key(model, data.train, encoding),
            "test": extractor.key(model, data.test, encoding),
        }
        keep = FeatureCache(extractor.cache / "probes").place(key)
        probes, curve = train_on_features(
            plain,
            flipped,
            data.classes,
            settings=self,
            seed=extractor.seed,
            device=extractor.device,
            test=test,
            keep=keep,
        )
        chosen = choose(curve, self.rates)
        classifier = LinearClassifier(
            weight=probes.each[chosen.index].best_weight,
            bias=probes.each[chosen.index].best_bias,
            classes=tuple(data.train.classes),
            reading=reading,
            image_size=size,
            network=model.digest,
            rate=self.rates[chosen.index],
            epoch=chosen.best_epoch,
        )
        name = f"linear-cached-{model.digest[:16]}-{keep.name[:16]}.safetensors"
        file = keep_classifier(classifier, extractor, name)
        return report(
            curve,
            chosen,
            self.rates,
            data,
            notes,
            classifier,
            file,
            prefix="linear_cached",
            budget=budget,
            paper=PAPER,
        )

    def budget(self, images: int) -> Budget:
        """The batch size and the number of epochs for so many images."""
        return training_budget(
            images, batch_size=self.batch_size, epochs=self.epochs, usual_epochs=PAPER_EPOCHS
        )


@dataclass(frozen=True, eq=False)
class CachedBatches:
    """Rows of features in a new order each epoch, each of the crop or of its mirror image."""

    plain: Features
    flipped: Features | None
    rows: Int[Tensor, "m"]
    batch_size: int
    seed: int

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """This process's share of every batch, read from the disk when its turn comes."""
        assert self.plain.labels is not None
        size, seed = self.batch_size, self.seed
        for batch in order(len(self.rows), batch_size=size, seed=seed, epoch=epoch):
            rows = self.rows[share_of(batch)]
            vectors = self.plain.vectors[rows]
            if self.flipped is not None:
                mirrored = torch.from_numpy(
                    uniform("mirrored features", seed, epoch, rows.numpy()) < 0.5
                )
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
    budget: Budget | None = None,
) -> tuple[Probes, Curve]:
    """Train a classifier for each rate on all features or on some rows of them.

    `budget` says for how long (by default as the settings have it for so many rows). With `test`,
    the curve has the accuracy after each epoch; with `keep`, a folder for exactly
    this training, it goes on where it was stopped.
    """
    rows = torch.arange(len(plain.vectors)) if rows is None else rows
    budget = budget or settings.budget(len(rows))
    probes = Probes(
        scaled(settings.rates, budget.batch_size),
        classes=classes,
        width=plain.vectors.shape[1],
        epochs=budget.epochs,
        seed=seed,
        device=device,
    )
    batches = CachedBatches(plain, flipped, rows, budget.batch_size, seed)
    return probes, train(probes, batches.epoch, len(rows), test, keep)


def both_ways(
    model: FrozenModel,
    train: Source,
    extractor: FeatureExtractor,
    encoding: CenterCrop,
    settings: LinearCached,
) -> tuple[Features, Features | None]:
    """Features of the training images, and of their mirror images where these are wanted."""
    plain = extractor.features(model, train, encoding, "training images")
    if not settings.flips:
        return plain, None
    mirror = CenterCrop(encoding.size, encoding.reading, flipped=True)
    return paired(plain, extractor.features(model, train, mirror, "mirrored training images"))


def paired(plain: Features, flipped: Features) -> tuple[Features, Features]:
    """The images that both have, so that a row is the same image in both.

    An image that could be read only the second time would shift all that come after it.
    """
    first, second = _rows_of(plain), _rows_of(flipped)
    return _only(plain, torch.isin(first, second)), _only(flipped, torch.isin(second, first))


def _rows_of(features: Features) -> Int[Tensor, "M"]:
    return torch.arange(len(features.vectors)) if features.rows is None else features.rows


def _only(features: Features, kept: Bool[Tensor, "M"]) -> Features:
    if bool(kept.all()):
        return features  # as nearly always, and then nothing is copied
    labels = None if features.labels is None else features.labels[kept]
    return Features(features.vectors[kept], labels, _rows_of(features)[kept])
