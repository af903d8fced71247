"""A linear classifier for tasks that need one, where none was given."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from pydantic import PositiveFloat

from attmask import distributed
from attmask.data.source import Source
from attmask.data.subset import split_holdout
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.features.store import digest
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.budget import Budget
from attmask.evaluation.probes.cached import CachedProbe, both_ways, train_on_features
from attmask.evaluation.probes.classifier import LinearClassifier, is_finite
from attmask.evaluation.probes.report import keep_classifier
from attmask.evaluation.probes.training import choose, overflowed
from attmask.settings import Config, setting

log = logging.getLogger(__name__)

# Counts whenever the same settings give other classifiers: what was kept is then stale. The
# versions of the tasks in catalog.py that use them must be raised with it.
_VERSION = 2
_HELD_OUT = 0.1  # of each class: they tell the learning rates apart where no test image may


class Fitting(Config):
    """How a classifier is fitted for a protocol that is given none."""

    epochs: int | None = setting(
        None,
        "passes to fit a classifier where none is given (null: 50, more for very few images)",
        ge=1,
    )
    batch_size: int | None = setting(
        None,
        "images a step to fit a classifier with (null: 1024, less where it would make fewer than "
        "1,000 steps)",
        ge=1,
    )
    rates: tuple[PositiveFloat, ...] = setting(
        CachedProbe().rates,
        "learning rates to fit a classifier with; training images held out choose one",
        min_length=1,
    )
    readout: Embedding = setting(
        Embedding(blocks=4),
        "what a fitted classifier reads of the network",
        paper="[CLS] of the last 4 blocks",
    )

    def fitting(self) -> CachedProbe:
        """The same as settings of a probe on cached features."""
        return CachedProbe(epochs=self.epochs, batch_size=self.batch_size, rates=self.rates)


def fit_classifier(
    model: FrozenModel,
    train: Source,
    extractor: FeatureExtractor,
    *,
    readout: Embedding,
    image_size: int,
    settings: CachedProbe,
) -> LinearClassifier:
    """A classifier for tasks that need one, trained once for each network, data and settings.

    No test image is looked at: a tenth of the training images of each class chooses the learning
    rate, and then all of them train the classifier.
    """
    if train.labels is None:
        raise UserError(f"the images of {train.root} have no labels; use one sub-folder a class")
    readout, _ = readout.fitting(model.backbone)
    crop = CenterCrop(image_size)
    network = model.digest
    budget = settings.budget(len(train))
    key = {
        "fitted": _VERSION,
        "training": budget.describe(),
        "settings": settings.model_dump(mode="json"),
        "seed": extractor.seed,
        "classes": list(train.classes),
        "train": extractor.key(model, train, crop, readout),
    }
    place = digest(key)
    name = f"fitted-{network[:16]}-{place[:16]}.safetensors"
    known = _load(extractor.cache / "classifiers" / name, network)
    if distributed.all_agree(known is not None) and known is not None:
        return known
    plain, flipped = both_ways(model, train, extractor, crop, readout, flips=settings.flips)
    index = _best_rate(plain, flipped, train, settings, extractor, budget)
    alone = settings.model_copy(update={"rates": (settings.rates[index],)})
    probes, _ = train_on_features(
        plain,
        flipped,
        len(train.classes),
        settings=alone,
        seed=extractor.seed,
        device=extractor.device,
        budget=budget,
    )
    if not is_finite(probes.each[0].weight, probes.each[0].bias):
        raise overflowed(alone.rates)
    fitted = LinearClassifier(
        # On the CPU, as it will be when it is read again: the same numbers both times.
        weight=probes.each[0].weight.cpu(),
        bias=probes.each[0].bias.cpu(),
        classes=tuple(train.classes),
        readout=readout,
        image_size=image_size,
        network=network,
        rate=alone.rates[0],
    )
    keep_classifier(fitted, extractor, name)
    return fitted


def _best_rate(
    plain: Features,
    flipped: Features | None,
    train: Source,
    settings: CachedProbe,
    extractor: FeatureExtractor,
    budget: Budget,
) -> int:
    """Which learning rate is best on held-out images when the others are learned from."""
    if len(settings.rates) == 1:
        return 0
    assert plain.labels is not None
    # The rows of the features take the place of the images, some of which may be unreadable.
    rows = np.arange(len(plain.labels), dtype=np.int64)
    everything = replace(train, rows=rows, labels=plain.labels.numpy())
    learned, asked = (torch.from_numpy(p.rows) for p in split_holdout(everything, _HELD_OUT))
    if len(asked) == 0:
        log.warning("no class has two images to hold one out; all of them choose the learning rate")
        asked = learned
    probes, _ = train_on_features(
        plain,
        flipped,
        len(train.classes),
        settings=settings,
        seed=extractor.seed,
        device=extractor.device,
        rows=learned,
        budget=budget,
    )
    return choose([probes.accuracies(plain, asked)], settings.rates).index


def _load(file: Path, network: str) -> LinearClassifier | None:
    """What was fitted before, if it is there and whole."""
    if not file.is_file():
        return None
    try:
        return LinearClassifier.load(file, network=network)
    except UserError as fault:
        log.warning("%s; it is fitted anew", fault)
        return None
