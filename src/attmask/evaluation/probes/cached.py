"""Linear probes on cached features of the centre crop and of its horizontal flip."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Bool, Int
from pydantic import PositiveFloat
from torch import Tensor

from attmask.data.source import Source
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.budget import Budget, scaled_rates, training_budget
from attmask.evaluation.probes.report import PaperRate
from attmask.evaluation.probes.training import (
    AccuracyCurve,
    LabelledBatch,
    Probes,
    order,
    share_of,
    train,
)
from attmask.randomness import uniform
from attmask.settings import Config, setting

PAPER = PaperRate(0.01, batch_size=1024)
PAPER_EPOCHS = 50


class CachedProbe(Config):
    """Settings for training linear classifiers on cached features."""

    epochs: int | None = setting(
        None,
        "number of epochs (null: 50, more if a batch size of 32 makes fewer than 1,000 steps)",
        paper="50",
        ge=1,
    )
    batch_size: int | None = setting(
        None,
        "images per step over all processes (null: 1024, less if it makes fewer than 1,000 steps)",
        paper="1024",
        ge=1,
    )
    rates: tuple[PositiveFloat, ...] = setting(
        (0.0005, 0.001, PAPER.for_256, 0.005, 0.01, 0.02, 0.05, 0.1),
        "learning rates at a batch size of 256; one classifier is trained for each",
        paper="0.0025 (0.01 at batch 1024)",
        min_length=1,
    )
    flips: bool = setting(True, "also train on flipped images", paper="true")

    def budget(self, images: int) -> Budget:
        """The batch size and the number of epochs for this number of images."""
        return training_budget(
            images, batch_size=self.batch_size, epochs=self.epochs, usual_epochs=PAPER_EPOCHS
        )


@dataclass(frozen=True, eq=False)
class CachedBatches:
    """Batches of features in a new order in each epoch, each image flipped or not at random."""

    plain: Features
    flipped: Features | None
    rows: Int[Tensor, "m"]
    batch_size: int
    seed: int

    def epoch(self, epoch: int) -> Iterator[LabelledBatch]:
        """This process's share of every batch, read from disk when it is needed."""
        assert self.plain.labels is not None
        size, seed = self.batch_size, self.seed
        for batch in order(len(self.rows), batch_size=size, seed=seed, epoch=epoch):
            rows = self.rows[share_of(batch)]
            vectors = self.plain.vectors[rows]
            if self.flipped is not None:
                # The name of this random stream must stay: results depend on it.
                flip = torch.from_numpy(
                    uniform("mirrored features", seed, epoch, rows.numpy()) < 0.5
                )
                vectors[flip] = self.flipped.vectors[rows[flip]]
            yield vectors, self.plain.labels[rows]


def train_on_features(
    plain: Features,
    flipped: Features | None,
    classes: int,
    *,
    settings: CachedProbe,
    seed: int,
    device: torch.device,
    rows: Int[Tensor, "m"] | None = None,
    test: Features | None = None,
    keep: Path | None = None,
    budget: Budget | None = None,
) -> tuple[Probes, AccuracyCurve]:
    """Train a classifier for each learning rate on all features or on some rows of them.

    `budget` is the length of the training (by default that of the settings). With `test`, the curve
    has the accuracy after each epoch. With `keep`, a folder for exactly this training, it resumes.
    """
    rows = torch.arange(len(plain.vectors)) if rows is None else rows
    budget = budget or settings.budget(len(rows))
    probes = Probes(
        scaled_rates(settings.rates, budget.batch_size),
        classes=classes,
        width=plain.vectors.shape[1],
        epochs=budget.epochs,
        seed=seed,
        device=device,
    )
    batches = CachedBatches(plain, flipped, rows, budget.batch_size, seed)
    return probes, train(probes, batches.epoch, len(rows), test, keep)


def plain_and_flipped(
    model: FrozenModel,
    train: Source,
    extractor: FeatureExtractor,
    crop: CenterCrop,
    readout: Embedding,
    *,
    flips: bool,
) -> tuple[Features, Features | None]:
    """Features of the training images and, with `flips`, of the flipped images."""
    plain = extractor.features(model, train, crop, readout, "training images")
    if not flips:
        return plain, None
    flip = replace(crop, flipped=True)
    return paired(plain, extractor.features(model, train, flip, readout, "flipped training images"))


def paired(plain: Features, flipped: Features) -> tuple[Features, Features]:
    """Keep the images that both have, so that a row is the same image in both.

    Otherwise an image that could be read only once would shift all following rows.
    """
    first, second = _rows_of(plain), _rows_of(flipped)
    return _only(plain, torch.isin(first, second)), _only(flipped, torch.isin(second, first))


def _rows_of(features: Features) -> Int[Tensor, "M"]:
    return torch.arange(len(features.vectors)) if features.rows is None else features.rows


def _only(features: Features, kept: Bool[Tensor, "M"]) -> Features:
    if bool(kept.all()):
        return features  # the usual case, without a copy
    labels = None if features.labels is None else features.labels[kept]
    return Features(features.vectors[kept], labels, _rows_of(features)[kept])
