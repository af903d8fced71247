"""Accuracy with the most attended patches black (the masked-ImageNet test).

The attention of a fixed reference network selects the patches, so all networks get the same images.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Annotated

import numpy as np
from jaxtyping import UInt16
from pydantic import Field, field_validator

from attmask import distributed
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier, class_indices
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop, Crop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.occluded import Occluded, attention_ranks
from attmask.evaluation.features.readout import AttentionMaps
from attmask.evaluation.loading import load_model
from attmask.evaluation.metrics.accuracy import Accuracy, accuracy
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.fit import Fitting, fit_classifier
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.plot import Curve, draw_curves
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import setting

Fraction = Annotated[float, Field(ge=0, le=1)]


class Occlusion(Fitting):
    """The accuracy of a linear classifier on images whose most attended patches are black."""

    ratios: tuple[Fraction, ...] = setting(
        (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7),
        "shares of the patches that are black, in ascending order",
        paper="0 to 0.7",
        min_length=1,
    )
    reference: str = setting(
        "vit_base_patch16_224.dino",
        "network whose attention selects the patches: a run, a weights file or a timm model",
        paper="DINO ViT-B/16",
    )
    classifier: Path | None = setting(
        None,
        "classifier file written by the task linear (null: fit one on the training images)",
        paper="the linear probe",
    )
    image_size: int | None = setting(
        None, "side of the crops in pixels (null: the network's own)", paper="224", ge=1
    )

    @field_validator("ratios")
    @classmethod
    def _rising(cls, ratios: tuple[float, ...]) -> tuple[float, ...]:
        if any(before >= after for before, after in pairwise(ratios)):
            raise ValueError(f"ratios {ratios} must be in ascending order, without duplicates")
        return ratios

    def check(self, model: FrozenModel, data: Split) -> None:
        """Check that the reference and the classifier can be loaded and fit the classes."""
        check_images(data.train, data.test)
        load_model(self.reference, last_block=True)
        given = self._given(model)
        check_crop(model, self.image_size if given is None else given.image_size)
        if given is not None:
            class_indices(given, data.test)

    def shown_size(self, model: FrozenModel) -> int | None:
        """The crop size of the classifier if one is given, else that of the settings."""
        given = self._given(model)
        return self.image_size or model.image_size if given is None else given.image_size

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """The accuracy on the test images for each share of black patches."""
        reference = load_model(self.reference, last_block=True)
        classifier, notes = self._classifier(model, data, extractor)
        index_of = class_indices(classifier, data.test)
        test, ranks = ranked_by(reference, data.test, classifier.image_size, extractor)
        found: dict[float, Accuracy] = {}
        for ratio in self.ratios:
            crop = black_at(ratio, ranks, classifier.image_size, reference.digest)
            features = extractor.features(
                model, test, crop, classifier.readout, f"images, {ratio:.0%} black"
            )
            assert features.labels is not None
            found[ratio] = accuracy(
                classifier, Features(features.vectors, index_of[features.labels])
            )
        first = {ratio: each.top1 for ratio, each in found.items()}
        details = {
            "ratios": list(first),
            "top-1": list(first.values()),
            "top-5": [each.top5 for each in found.values()],
            "patches": ranks.shape[1],
            "black patches": [int(ranks.shape[1] * ratio) for ratio in first],
            "reference": reference.digest,
            "classifier": classifier.describe(),
        }
        key = json.dumps([self.model_dump(mode="json"), details, extractor.contents(test)])
        name = f"{model.digest[:16]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        file = extractor.cache / "plots" / f"occlusion-{name}.png"
        files, told = drawn({model.name: list(first.items())}, file)
        return Measures(
            metrics=_metrics(first),
            notes=(*notes, *told),
            details=details,
            files=files,
        )

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Plot the curves of several networks."""
        _, notes = drawn({card.checkpoint: _curve(card) for card in cards}, file)
        if notes:
            raise UserError(notes[0])

    def _classifier(
        self, model: FrozenModel, data: Split, extractor: FeatureExtractor
    ) -> tuple[LinearClassifier, tuple[str, ...]]:
        """The given classifier, or one fitted on unoccluded images, with notes."""
        given = self._given(model)
        if given is not None:
            return given, ()
        readout, notes = self.readout.fitting(model.backbone)
        fitted = fit_classifier(
            model,
            data.train,
            extractor,
            readout=readout,
            image_size=self.image_size or model.image_size,
            settings=self.fitting(),
        )
        told = (
            "the classifier was fitted on cached features of unoccluded training images, "
            f"{self.fitting().budget(len(data.train))}"
        )
        missing = data.missing_in_train()
        if missing:
            told = (
                f"{told}; tested classes without a training image: {len(missing)}, "
                f"the first is {missing[0]}"
            )
        return fitted, (told, *notes)

    def _given(self, model: FrozenModel) -> LinearClassifier | None:
        """The classifier of the given file, if any."""
        if self.classifier is None:
            return None
        return LinearClassifier.load(
            self.classifier, network=model.digest, image_size=self.image_size
        )


def ranked_by(
    reference: FrozenModel, source: Source, image_size: int, extractor: FeatureExtractor
) -> tuple[Source, UInt16[np.ndarray, "M N"]]:
    """The readable images, and the ranks of their patches by the attention of the reference."""
    attention = extractor.features(
        reference,
        source,
        CenterCrop(image_size),
        AttentionMaps(fit=True),
        "images with the reference network",
    )
    read = source if attention.rows is None else source.subset(attention.rows.numpy())
    return read, attention_ranks(attention.values.flatten(1))


def black_at(ratio: float, ranks: UInt16[np.ndarray, "M N"], size: int, reference: str) -> Crop:
    """The crop at a ratio; a plain centre crop, shared with other tasks, if no patch is black."""
    occluded = Occluded(size, ratio, ranks, reference)
    return occluded if occluded.hidden else CenterCrop(size)


def _metrics(top1: Mapping[float, float]) -> tuple[Metric, ...]:
    """The mean over all ratios, then top-1 at each ratio."""
    mean = fmean(top1.values())
    return (
        Metric("occlusion.top1", mean, "%", True, title="top-1 accuracy, mean over ratios"),
        *(
            Metric(
                f"occlusion.top1@{ratio:.15g}",
                value,
                "%",
                True,
                title=f"top-1 accuracy at ratio {ratio:g}",
            )
            for ratio, value in top1.items()
        ),
    )


def _curve(card: Card) -> Curve:
    return list(zip(card.details["ratios"], card.details["top-1"], strict=True))


def drawn(curves: Mapping[str, Curve], file: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Plot accuracy against ratio of one or several networks; a note if that fails."""
    whose = f" of {next(iter(curves))}" if len(curves) == 1 else ""
    if distributed.is_main():
        try:
            draw_curves(
                curves,
                file,
                title="Accuracy with the most attended patches blacked out",
                across="share of black patches",
                up=f"top-1{whose}, per cent",
            )
        except UserError as fault:  # the results are kept without a plot
            return (), (f"no plot was drawn: {fault}",)
    return (file,), ()
