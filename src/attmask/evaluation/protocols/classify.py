"""The accuracy of a network together with its classifier, as it was fine-tuned."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attmask import distributed
from attmask.data.label_sets import membership
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier, class_indices
from attmask.evaluation.datasets.pictures import Shown
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.metrics.classification import (
    Answers,
    Classification,
    multi_label,
    single_label,
)
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.classification import as_details, confusion_of, write_files
from attmask.evaluation.reporting.confusion import draw_confusions
from attmask.evaluation.requirements import check_images, classifier_of
from attmask.evaluation.task import Measures
from attmask.settings import Config, setting

_NUMBERS_AT_ONCE = 2**24


class Classify(Config):
    """The measures of a fine-tuned network, over all images and for each class."""

    classifier: Path | None = setting(
        None, "classifier file written by the task linear (null: the network's own)"
    )
    threshold: float = setting(
        0.5, "probability from which on a multi-label classifier names a class", gt=0, lt=1
    )

    def check(self, model: FrozenModel, data: Shown) -> None:
        """Check that there is a classifier that knows all classes of the images."""
        check_images(data.images)
        self._known(classifier_of(model, self.classifier), data.images)

    def shown_size(self, model: FrozenModel) -> int:
        """The crop size that the classifier was trained on."""
        return classifier_of(model, self.classifier).image_size

    def measure(self, model: FrozenModel, data: Shown, extractor: FeatureExtractor) -> Measures:
        """Classify the images; the files of the result are written to the cache."""
        classifier = classifier_of(model, self.classifier)
        known = self._known(classifier, data.images)
        crop = CenterCrop(classifier.image_size)
        features = extractor.features(
            model, data.images, crop, classifier.readout, f"images, {data.split}"
        )
        found = self._classified(classifier, features, known)
        details = as_details(found)
        settings = self.model_dump(mode="json")
        key = json.dumps([settings, classifier.digest, extractor.contents(data.images), details])
        name = f"{model.digest[:16]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        files, told = _written(extractor.cache / "plots" / f"classify-{name}", found, model.name)
        return Measures(
            metrics=found.metrics,
            notes=(*found.notes, *told),
            details={**details, "classifier": classifier.describe()},
            files=files,
        )

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Draw the confusion matrices of several networks side by side."""
        draw_confusions([confusion_of(card.checkpoint, card.details) for card in cards], file)

    def _known(
        self, classifier: LinearClassifier, source: Source
    ) -> Int[Tensor, "K"] | Bool[Tensor, "K C"]:
        """For each class of the images, the classifier's number, or which classes it joins."""
        if source.labels is None:
            raise UserError(
                f"the images of {source.root} have no labels; use one folder per class, or "
                "`attmask predict`, which needs none"
            )
        if not classifier.multi_label:
            return class_indices(classifier, source)
        used = set(np.unique(source.labels).tolist())
        asked = [name if label in used else "" for label, name in enumerate(source.classes)]
        try:
            return torch.from_numpy(membership(asked, classifier.classes))
        except KeyError as fault:
            raise UserError(
                f"the classifier does not know the class {fault.args[0]} of {source.root}; give "
                "one that was trained on these classes"
            ) from fault

    def _classified(
        self,
        classifier: LinearClassifier,
        features: Features,
        known: Int[Tensor, "K"] | Bool[Tensor, "K C"],
    ) -> Classification:
        labels = features.labels
        assert labels is not None
        if classifier.multi_label:
            logits = torch.cat([logits for _, logits in _batches(classifier, features)])
            return multi_label(known[labels], logits, classifier.classes, self.threshold)
        answers = [
            Answers.of(known[labels[rows]], logits)
            for rows, logits in _batches(classifier, features)
        ]
        return single_label(Answers.joined(answers), classifier.classes)


def _batches(
    classifier: LinearClassifier, features: Features
) -> Iterator[tuple[slice, Float[Tensor, "m C"]]]:
    """The logits of all images, some at a time."""
    at_once = max(1, _NUMBERS_AT_ONCE // max(classifier.weight.shape))
    for first in range(0, len(features.vectors), at_once):
        rows = slice(first, first + at_once)
        yield rows, classifier.logits(features.vectors[rows]).cpu()


def _written(
    folder: Path, found: Classification, title: str
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write the files; a note if that fails, because the results are kept without them."""
    if not distributed.is_main():
        return (), ()
    try:
        return write_files(folder, found, title), ()
    except UserError as fault:
        return (), (f"no files were written: {fault}",)
