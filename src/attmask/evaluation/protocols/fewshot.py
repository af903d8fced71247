"""k-NN with few labelled images per class."""

import statistics
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Int64
from pydantic import Field
from torch import Tensor

from attmask.data.subset import position_in_class
from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.metrics.accuracy import Accuracy
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.knn import (
    IDLE_CLASSES,
    TOP_5,
    checked_labels,
    knn_accuracies,
    missing_classes,
)
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import Config, setting

_SINGLES_APART = 5  # distance of the single images of two subsets, as in the reference


class FewShot(Config):
    """k-NN on disjoint small subsets of the training images, averaged."""

    shots: tuple[Annotated[int, Field(ge=1)], ...] = setting(
        (1, 5, 10, 20), "training images per class", paper="1, 5, 10, 20", min_length=1
    )
    subsets: int = setting(5, "disjoint subsets for each number of shots", paper="5", ge=1)
    k: int = setting(20, "number of neighbours; always 1 with one shot", paper="20", ge=1)
    temperature: float = setting(
        0.07, "temperature of the votes, exp(cosine / temperature)", paper="0.07", gt=0
    )
    readout: Embedding = setting(Embedding(), "features to use")
    image_size: int | None = setting(
        None, "side of the centre crop in pixels (null: the network's own)", paper="224", ge=1
    )

    def check(self, model: FrozenModel, data: Split) -> None:
        """Check that every class has enough images."""
        check_images(data.train, data.test)
        check_crop(model, self.image_size, self.readout)
        assert data.train.labels is not None
        self._fewest(torch.from_numpy(np.array(data.train.labels, dtype=np.int64)), data)

    def _fewest(self, labels: Int64[Tensor, "M"], data: Split) -> tuple[int, str]:
        """The size and the name of the smallest class, which must have enough images."""
        sizes = labels.bincount()
        fewest = int(sizes[sizes > 0].min())
        smallest = data.train.classes[int((sizes == fewest).nonzero()[0])]
        if fewest < min(self.shots):
            raise UserError(
                f"{min(self.shots)} images per class are needed, but {smallest} has "
                f"{fewest}; use shots=[{fewest}], or leave that class out"
            )
        return fewest, smallest

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """Mean and sample std of top-1 over the subsets, for each number of shots."""
        crop = CenterCrop(self.image_size or model.image_size)
        train = extractor.features(model, data.train, crop, self.readout, "train images")
        test = extractor.features(model, data.test, crop, self.readout, "test images")
        labels = checked_labels("train images", train, data.classes)
        positions, sizes = torch.from_numpy(position_in_class(labels.numpy())), labels.bincount()
        fewest, smallest = self._fewest(labels, data)
        metrics: list[Metric] = []
        notes = missing_classes(train, test, data.train.classes)
        details: dict[str, Any] = {}
        ks: dict[str, int] = {}
        for shots in dict.fromkeys(self.shots):
            name = f"{shots} shot" if shots == 1 else f"{shots} shots"
            starts = [s for s in self.starts(shots) if s + shots <= fewest]
            if len(starts) < self.subsets:
                got = f"from {len(starts)} of {self.subsets} subsets" if starts else "left out"
                notes.append(f"{name}: {got}, because {smallest} has {fewest} images")
            if not starts:
                continue
            found = [
                self._accuracy(
                    _chosen(train, positions, start, shots), test, shots, data, extractor
                )
                for start in starts
            ]
            top1 = [accuracy.top1 for accuracy in found]
            k = self.neighbours(shots, shots * int((sizes > 0).sum()))
            metric = Metric(
                f"fewshot.top1@{shots}",
                statistics.fmean(top1),
                "%",
                True,
                spread=statistics.stdev(top1) if len(top1) > 1 else None,
                title=f"top-1 accuracy, {name} (k = {k})",
            )
            metrics.append(metric)
            ks[metric.key] = k
            details[name] = {"starts": starts, "top-1": top1}
            if k >= TOP_5:
                details[name]["top-5"] = [accuracy.top5 for accuracy in found]
        notes += self._few_neighbours(int((sizes > 0).sum()), fewest)
        if any(k >= TOP_5 for k in ks.values()):
            notes.append(IDLE_CLASSES)
        return Measures(tuple(metrics), tuple(notes), {**details, "k": ks})

    def starts(self, shots: int) -> list[int]:
        """The first image of each subset within a class, in file order."""
        return [i * (_SINGLES_APART if shots == 1 else shots) for i in range(self.subsets)]

    def neighbours(self, shots: int, images: int) -> int:
        """The number of neighbours that vote, out of `images`."""
        return 1 if shots == 1 else min(self.k, images)

    def _accuracy(
        self, bank: Features, test: Features, shots: int, data: Split, extractor: FeatureExtractor
    ) -> Accuracy:
        k = self.neighbours(shots, len(bank.vectors))
        return knn_accuracies(
            bank,
            test,
            ks=[k],
            temperature=self.temperature,
            classes=data.classes,
            device=extractor.device,
        )[k]

    def _few_neighbours(self, classes: int, fewest: int) -> list[str]:
        return [
            f"{shots} shots: k = {self.k} is more than the {shots * classes} images, so all vote"
            for shots in self.shots
            if 1 < shots <= fewest and shots * classes < self.k
        ]


def _chosen(train: Features, positions: Int64[Tensor, "M"], start: int, shots: int) -> Features:
    """The features of `shots` images of each class, from `start` on."""
    assert train.labels is not None
    chosen = ((positions >= start) & (positions < start + shots)).nonzero().squeeze(1)
    return Features(values=train.vectors[chosen], labels=train.labels[chosen])
