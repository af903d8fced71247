"""Reliance on backgrounds: the accuracy of a linear classifier on ImageNet-9."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.datasets.backgrounds import KINDS, MAPPING, VARIANTS, ChangedBackgrounds
from attmask.evaluation.features.crops import CenterCrop, Crop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.native_size import NativeSize, common_side, whole_patches
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.fit import Fitting, fit_classifier
from attmask.evaluation.requirements import check_crop
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import setting

_ROWS_AT_ONCE = 4096
_NO_OBJECT = ("no_fg", "only_bg_b", "only_bg_t")


class BackgroundReliance(Fitting):
    """Accuracy on objects with their own, another or no background."""

    classifier: Path | None = setting(
        None,
        "classifier file written by the task linear, with ImageNet's classes or the nine kinds "
        "(null: fit a 9-way classifier on original/train)",
        paper="1000 classes",
    )
    resize: bool = setting(False, "resize and crop the images as in other tasks", paper="false")
    image_size: int | None = setting(
        None,
        "side of the crops to fit the classifier, and of resized images, in pixels (null: the "
        "images' own without resize, else the network's)",
        ge=1,
    )

    def check(self, model: FrozenModel, data: ChangedBackgrounds) -> None:
        """Check that there is a classifier, or images to fit one on."""
        self._given(model, data)
        if self.image_size is not None:
            check_crop(model, self.image_size)

    def shown_size(self, model: FrozenModel) -> int | None:
        """The crop size if images are resized, else None because images may have any size."""
        if not self.resize:
            return None
        if self.classifier is not None:
            return LinearClassifier.load(self.classifier, network=model.digest).image_size
        return self.image_size or model.image_size

    def measure(
        self, model: FrozenModel, data: ChangedBackgrounds, extractor: FeatureExtractor
    ) -> Measures:
        """The accuracy on each variant, in per cent."""
        given = self._given(model, data)
        sides = {name: None if self.resize else common_side(s) for name, s in data.tests.items()}
        side = next(iter(sides.values()))
        shown = whole_patches(side, model.backbone.patch_size) if side else model.image_size
        classifier, notes = given or self._fitted(model, data, extractor, self.image_size or shown)
        kind_of, way = kinds_of(classifier, data)
        right: dict[str, float] = {}
        outside: dict[str, float] = {}
        for name, source in data.tests.items():
            crop: Crop = (
                CenterCrop(classifier.image_size)
                if self.resize
                else NativeSize(model.backbone.patch_size, sides[name])
            )
            features = extractor.features(
                model, source, crop, classifier.readout, f"images, {name}"
            )
            answers = recognise(classifier, features, kind_of)
            right[name], outside[name] = answers.right, answers.outside
        return Measures(
            metrics=_metrics(right),
            notes=(way, *notes, *self._notes(model, data, sides)),
            details={
                "answers outside the nine kinds, per cent": outside,
                "classifier": classifier.describe(),
            },
        )

    def _given(
        self, model: FrozenModel, data: ChangedBackgrounds
    ) -> tuple[LinearClassifier, tuple[str, ...]] | None:
        """The classifier of the given file, or None if one can be fitted."""
        if self.classifier is not None:
            given = LinearClassifier.load(
                self.classifier, network=model.digest, image_size=self.image_size
            )
            kinds_of(given, data)
            return given, ()
        if data.train is None:
            raise UserError(
                f"{data.root} has no original/train to fit a 9-way classifier on; add it, or give "
                "classifier=FILE, which the task linear writes"
            )
        return None

    def _fitted(
        self, model: FrozenModel, data: ChangedBackgrounds, extractor: FeatureExtractor, size: int
    ) -> tuple[LinearClassifier, tuple[str, ...]]:
        """A classifier fitted on the original training images, with notes."""
        assert data.train is not None
        assert data.train.labels is not None
        readout, notes = self.readout.fitting(model.backbone)
        settings = self.fitting()
        fitted = fit_classifier(
            model, data.train, extractor, readout=readout, image_size=size, settings=settings
        )
        trained = f"the classifier was fitted for {settings.budget(len(data.train))}"
        unseen = [k for n, k in enumerate(KINDS) if n not in set(data.train.labels.tolist())]
        told = [f"original/train has no image of {', '.join(unseen)}"] if unseen else []
        return fitted, (trained, *told, *notes)

    def _notes(
        self, model: FrozenModel, data: ChangedBackgrounds, sides: dict[str, int | None]
    ) -> Iterator[str]:
        if data.missing:
            yield f"missing variants: {', '.join(data.missing)}"
        patch = model.backbone.patch_size
        for side in sorted({side for side in sides.values() if side is not None and side % patch}):
            yield (
                f"images of {side} pixels were cropped to the central "
                f"{whole_patches(side, patch)}, because the patch size is {patch}"
            )
        mixed = [name for name, side in sides.items() if side is None]
        if mixed and not self.resize:
            yield (
                f"the images of {', '.join(mixed)} are not squares of one size; each was cropped "
                "to whole patches"
            )


def _metrics(right: Mapping[str, float]) -> tuple[Metric, ...]:
    """The accuracy on each variant by the name of its folder, and the background gap."""
    metrics = []
    for name, accuracy in right.items():
        # Without the object, the class can only be guessed from the background.
        direction = None if VARIANTS[name] in _NO_OBJECT else True
        metrics.append(
            Metric(f"backgrounds.{VARIANTS[name]}", accuracy, "%", direction, title=name)
        )
    if "mixed same" in right and "mixed random" in right:
        gap = right["mixed same"] - right["mixed random"]
        metrics.append(Metric("backgrounds.gap", gap, "points", False, title="background gap"))
    return tuple(metrics)


@dataclass(frozen=True)
class Answers:
    """The shares of right answers and of answers outside the nine kinds, in per cent."""

    right: float
    outside: float


def kinds_of(
    classifier: LinearClassifier, data: ChangedBackgrounds
) -> tuple[Int[Tensor, "C"], str]:
    """The kind of each class of the classifier, -1 for none, and a note on the mapping."""
    known = len(classifier.classes)
    if known == len(KINDS):
        for kind, name in zip(KINDS, classifier.classes, strict=True):
            if name[:2] != kind[:2]:
                raise UserError(
                    f"the classifier has nine classes, but one is {name} instead of {kind}; "
                    "give one that was trained on ImageNet-9 or on ImageNet"
                )
        return torch.arange(known), "the classifier has only the nine kinds as classes"
    if data.kind_of is None:
        raise UserError(
            f"the classifier has {known} classes, but {data.root} has no {MAPPING} that maps them "
            "to kinds; add the official file, or give mapping=FILE"
        )
    if known != len(data.kind_of):
        raise UserError(
            f"the classifier has {known} classes, but {MAPPING} has {len(data.kind_of)}; give "
            "a classifier with these classes, or with the nine kinds"
        )
    kind_of = torch.tensor(data.kind_of)
    without = int((kind_of < 0).sum())
    return kind_of, (
        f"the classifier has {known} classes; the {without} outside the nine kinds count as wrong"
    )


def recognise(
    classifier: LinearClassifier, features: Features, kind_of: Int[Tensor, "C"]
) -> Answers:
    """Compare the kind of the class with the highest logit with the label."""
    assert features.labels is not None
    right = outside = 0
    for first in range(0, len(features.labels), _ROWS_AT_ONCE):
        rows = slice(first, first + _ROWS_AT_ONCE)
        kinds = kind_of[classifier.logits(features.vectors[rows]).argmax(dim=1).cpu()]
        right += int((kinds == features.labels[rows]).sum())
        outside += int((kinds < 0).sum())
    images = len(features.labels)
    return Answers(right=100 * right / images, outside=100 * outside / images)
