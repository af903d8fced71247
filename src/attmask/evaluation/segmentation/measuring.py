"""Predicted masks of a frozen network, measured at the size of the true ones, and their report."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attmask import distributed
from attmask.agreement import together
from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.masks import MaskedImages
from attmask.errors import UserError
from attmask.evaluation.datasets.masked import MaskedSplit
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Count, Features
from attmask.evaluation.metrics.segmentation import Segmentation, Segmented
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.bars import draw_bars
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.masks import SegmentedExample
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.reporting.segmentation import (
    SHOWN_IMAGES,
    as_details,
    write_segmentation,
)
from attmask.evaluation.segmentation.labels import best_classes, read_labels
from attmask.evaluation.task import Measures
from attmask.settings import Config

Scores = Callable[[range], Iterator[Float[Tensor, "C h w"]]]
"""The scores of each class for the patches of some of the test images, image after image."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predicted masks of test images, made from the scores of their patches."""

    images: MaskedImages
    readable: Sequence[int]
    """The images that have scores, in their order."""
    scores: Scores
    data: DataConfig

    def measure(self, prefix: str, count: Count) -> Segmentation:
        """The measures of all images; each process takes its share of them."""
        own = Segmented(len(self.images.classes))
        share = distributed.share_of(len(self.readable))
        with together():
            for place, scores in zip(share, self.scores(share), strict=True):
                index = self.readable[place]
                truth = torch.from_numpy(read_labels(self.images, index, self.data)).long()
                height, width = truth.shape
                own.update(best_classes(scores, (height, width)).cpu(), truth, index)
                count(1)
        return own.of_all_processes().result(self.images.classes.names, prefix)

    def example(self, index: int, iou: float) -> SegmentedExample:
        """An image with its true and its predicted mask."""
        place = self.readable.index(index)
        truth = read_labels(self.images, index, self.data)
        height, width = truth.shape
        (scores,) = self.scores(range(place, place + 1))
        return SegmentedExample(
            self.images.source.name(index),
            decode(self.images.source, index, self.data),
            truth,
            best_classes(scores, (height, width)).cpu().numpy(),
            iou,
        )


@dataclass(frozen=True, eq=False)
class Probed:
    """What a probe of patches has found: scores, and what is told of how they were made."""

    scores: Scores
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


def rows_of(features: Features) -> list[int]:
    """The images that the rows of features belong to."""
    rows = features.rows
    return list(range(len(features.values))) if rows is None else rows.tolist()


def measures_of(
    prefix: str,
    protocol: Config,
    model: FrozenModel,
    data: MaskedSplit,
    test: Features,
    probed: Probed,
    extractor: FeatureExtractor,
) -> Measures:
    """The result of a probe on the test images, with files of the classes and the worst images."""
    predictions = Predictions(data.test, rows_of(test), probed.scores, model.data)
    with counting("segmenting test images", len(test.values)) as count:
        measured = predictions.measure(prefix, count)
    source = data.test.source
    details = as_details(measured, source.name)
    key = json.dumps([protocol.model_dump(mode="json"), extractor.contents(source), details])
    name = f"{model.digest[:16]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    folder = extractor.cache / "plots" / f"{prefix.replace('_', '-')}-{name}"
    files, told = _written(folder, predictions, measured, model.name)
    return Measures(
        metrics=measured.metrics,
        notes=(*probed.notes, *measured.notes, *told),
        details={**details, **probed.details},
        files=files,
    )


def draw_classes(cards: Sequence[Card], file: Path, *, title: str) -> None:
    """Plot the IoU of each class for several networks, the classes with most pixels first."""
    by_network = {
        card.checkpoint: {row["name"]: row for row in card.details["classes"]} for card in cards
    }
    first = next(iter(by_network.values()))
    names = sorted(first, key=lambda name: -first[name]["share"])
    series = {
        f"{card.checkpoint}: mean {card.metrics[0].value:.1f}": [
            by_network[card.checkpoint].get(name, {}).get("iou") for name in names
        ]
        for card in cards
    }
    draw_bars(names, series, file, title=title, across="IoU of each class, per cent")


def _written(
    folder: Path, predictions: Predictions, measured: Segmentation, title: str
) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write the files; a note if that fails, because the results are kept without them."""
    if not distributed.is_main():
        return (), ()
    try:
        worst = [predictions.example(*found) for found in measured.worst_first[:SHOWN_IMAGES]]
        return write_segmentation(folder, measured, worst, title), ()
    except UserError as fault:
        return (), (f"no files were written: {fault}",)
