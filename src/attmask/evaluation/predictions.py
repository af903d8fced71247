"""The classes that a network with its classifier predicts, image after image."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float32

from attmask import distributed
from attmask.agreement import together
from attmask.data.pictures.endings import picture_endings
from attmask.data.source import Source, everything
from attmask.data.sources import open_images
from attmask.data.stores.files import Files
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import ReadBatch
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.progress import counting

log = logging.getLogger(__name__)

THRESHOLD = 0.5
"""The probability from which on a multi-label classifier names a class."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """What the classifier says of one image; nothing if the image cannot be read."""

    name: str
    split: str
    label: str | None
    """The true class, if it is known."""
    classes: tuple[str, ...]
    """The most probable classes, or all from the threshold on; the most probable first."""
    probabilities: tuple[float, ...]
    """Of these classes."""
    every: Float32[np.ndarray, " C"] | None
    """The probability of every class, in the order of the classifier; None if unreadable."""


@dataclass(frozen=True)
class Choice:
    """Which classes are named: the `top` most probable, or all from `threshold` on."""

    top: int
    threshold: float | None

    @classmethod
    def of(cls, classifier: LinearClassifier, top: int | None, threshold: float | None) -> "Choice":
        """What was asked for, if it fits the classifier."""
        if classifier.multi_label and top is not None:
            raise UserError(
                f"top={top} was given, but this classifier may give an image several classes; use "
                "a threshold"
            )
        if not classifier.multi_label and threshold is not None:
            raise UserError(
                f"threshold={threshold:g} was given, but this classifier gives each image one "
                "class; use top"
            )
        if threshold is not None and not 0 < threshold < 1:
            raise UserError(f"threshold={threshold:g} is not between 0 and 1; use such as 0.5")
        if top is not None and top < 1:
            raise UserError(f"top={top} is less than 1; use 1 for the most probable class alone")
        if classifier.multi_label:
            return cls(len(classifier.classes), THRESHOLD if threshold is None else threshold)
        return cls(min(top or 1, len(classifier.classes)), None)

    def __call__(self, probabilities: Float32[np.ndarray, " C"]) -> list[int]:
        """The numbers of the named classes, the most probable first; ties by number."""
        ranked = np.argsort(-probabilities, kind="stable")[: self.top]
        least = 0.0 if self.threshold is None else self.threshold
        return [number for number in ranked.tolist() if probabilities[number] >= least]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions for all images of some sources, computed while they are iterated.

    With several processes, all of them must iterate; the main one gets the predictions of all, in
    order, and the others none.
    """

    model: FrozenModel
    classifier: LinearClassifier
    sources: Mapping[str, Source]
    choice: Choice
    extractor: FeatureExtractor
    device: torch.device
    """The device of all processes; `extractor` has that of this one."""

    def __len__(self) -> int:
        return sum(map(len, self.sources.values()))

    @property
    def has_labels(self) -> bool:
        """Whether some images have a label."""
        return any(source.labels is not None for source in self.sources.values())

    def __iter__(self) -> Iterator[Prediction]:
        with (
            distributed.processes(self.device),
            counting("predicting", len(self)) as count,
        ):
            for split, source in self.sources.items():
                unread: list[int] = []
                done = 0
                for probabilities, readable in self._blocks(source):
                    for row, found in enumerate(probabilities):
                        if not readable[row]:
                            unread.append(done + row)
                        if distributed.is_main():
                            every = found if readable[row] else None
                            yield self._prediction(source, split, done + row, every)
                    done += len(probabilities)
                    count(len(probabilities))
                _warn_of(source, unread)

    def _blocks(
        self, source: Source
    ) -> Iterator[tuple[Float32[np.ndarray, "m C"], Bool[np.ndarray, " m"]]]:
        """The probabilities of all images in order, one batch of each process at a time."""
        own = _Turns(len(source), self.extractor.batch_size)
        crop, readout = CenterCrop(self.classifier.image_size), self.classifier.readout
        batches = self.extractor.stream(self.model, source, crop, readout, indices=own)
        for _ in range(own.blocks):
            with together():
                batch = next(batches, None)
                found = self._read(source, batch)
            yield (
                distributed.gather_rows(torch.from_numpy(found[0])).numpy(),
                distributed.gather_rows(torch.from_numpy(found[1]).byte()).bool().numpy(),
            )

    def _read(
        self, source: Source, batch: ReadBatch | None
    ) -> tuple[Float32[np.ndarray, "m C"], Bool[np.ndarray, " m"]]:
        if batch is None:  # the other processes have images left
            none = np.empty((0, len(self.classifier.classes)), dtype=np.float32)
            return none, np.empty(0, dtype=np.bool_)
        found = self.classifier.probabilities(batch.values).cpu()
        if not found.isfinite().all():
            raise UserError(
                f"the predictions of {self.model.name} for images of {source.root} are not "
                "finite; its training diverged, so use an earlier checkpoint"
            )
        return found.numpy(), batch.readable.numpy()

    def _prediction(
        self, source: Source, split: str, index: int, every: Float32[np.ndarray, " C"] | None
    ) -> Prediction:
        chosen = [] if every is None else self.choice(every)
        return Prediction(
            name=source.name(index),
            split=split,
            label=None if source.labels is None else source.classes[int(source.labels[index])],
            classes=tuple(self.classifier.classes[number] for number in chosen),
            probabilities=() if every is None else tuple(every[chosen].tolist()),
            every=every,
        )


def pictures_of(path: Path, split: str | None, channels: int) -> dict[str, Source]:
    """The images to predict: one picture, all splits of a data set, or one split of it."""
    if path.is_file() and path.name.lower().endswith(tuple(picture_endings())):
        found = {"train": everything(path.parent, Files(path.parent, (path.name,)))}
    else:
        found = dict(open_images(path, channels=channels).splits)
    if split is None:
        return found
    if split not in found:
        raise UserError(
            f"there is no split {split} in {path}, only {', '.join(found)}; choose one of these"
        )
    return {split: found[split]}


class _Turns(Sequence[int]):
    """The images of this process: whole batches, of which each process takes one in turn."""

    def __init__(self, images: int, batch_size: int) -> None:
        self.images, self.batch_size = images, batch_size
        self.rank, self.world = distributed.rank(), distributed.world_size()
        self.blocks = -(-images // (batch_size * self.world))
        """The number of turns until all images are taken."""

    def __len__(self) -> int:
        whole, rest = divmod(self.images, self.batch_size * self.world)
        left = rest - self.rank * self.batch_size
        return whole * self.batch_size + max(0, min(self.batch_size, left))

    def __getitem__(self, position: int) -> int:  # type: ignore[override] # no slices are asked for
        turn, inner = divmod(position, self.batch_size)
        return (turn * self.world + self.rank) * self.batch_size + inner


def _warn_of(source: Source, unread: Sequence[int]) -> None:
    if unread and distributed.is_main():
        log.warning(
            "%d of %d images of %s cannot be read, the first is %s; they have no prediction",
            *(len(unread), len(source), source.root, source.name(unread[0])),
        )
