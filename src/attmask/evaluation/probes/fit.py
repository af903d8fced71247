"""Fit a linear classifier for tasks that need one and were given none."""

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
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.features.store import digest
from attmask.evaluation.metrics.accuracy import is_finite
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.budget import Budget
from attmask.evaluation.probes.cached import CachedProbe, plain_and_flipped, train_on_features
from attmask.evaluation.probes.report import keep_classifier
from attmask.evaluation.probes.training import choose, overflowed
from attmask.settings import Config, setting

log = logging.getLogger(__name__)

# Increase it whenever the same settings give other classifiers, so that cached ones are not used.
# Also increase the versions of the tasks in catalog.py that use them.
_VERSION = 2
_HELD_OUT = 0.1  # of each class, to select the learning rate without test images


class Fitting(Config):
    """Settings for the classifier that is fitted if none is given."""

    epochs: int | None = setting(
        None,
        "epochs to fit the classifier if none is given (null: 50, more for very few images)",
        ge=1,
    )
    batch_size: int | None = setting(
        None,
        "batch size to fit the classifier (null: 1024, less if it makes fewer than 1,000 steps)",
        ge=1,
    )
    rates: tuple[PositiveFloat, ...] = setting(
        CachedProbe().rates,
        "learning rates to fit the classifier; held-out training images select one",
        min_length=1,
    )
    readout: Embedding = setting(
        Embedding(blocks=4),
        "features of the fitted classifier",
        paper="[CLS] of the last 4 blocks",
    )

    def fitting(self) -> CachedProbe:
        """These settings as those of a probe on cached features."""
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
    """Train a classifier, or load the cached one of the same network, data and settings.

    Test images are not used: a tenth of the training images of each class selects the learning
    rate, then the classifier is trained on all of them.
    """
    if train.labels is None:
        raise UserError(f"the images of {train.root} have no labels; use one folder per class")
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
    key_hash = digest(distributed.from_main(key))
    name = f"fitted-{network[:16]}-{key_hash[:16]}.safetensors"
    known = _load(extractor.cache / "classifiers" / name, network)
    if distributed.all_agree(known is not None) and known is not None:
        return known
    plain, flipped = plain_and_flipped(model, train, extractor, crop, readout, flips=settings.flips)
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
        # On the CPU, as when it is loaded from the cache, so that the results are the same.
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
    """The index of the learning rate that is best on held-out training images."""
    if len(settings.rates) == 1:
        return 0
    assert plain.labels is not None
    # Rows of the features, not of the source, because some images may be unreadable.
    rows = np.arange(len(plain.labels), dtype=np.int64)
    everything = replace(train, rows=rows, labels=plain.labels.numpy())
    learned, asked = (torch.from_numpy(p.rows) for p in split_holdout(everything, _HELD_OUT))
    if len(asked) == 0:
        log.warning(
            "no class has two images, so none can be held out; the learning rate is selected on "
            "the training images"
        )
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
    """The cached classifier, or None if it is missing or damaged."""
    if not file.is_file():
        return None
    try:
        return LinearClassifier.load(file, network=network)
    except UserError as fault:
        log.warning("%s; it is fitted again", fault)
        return None
