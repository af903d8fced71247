"""The classes of a fine-tuning: what a label of the images means to the classifier."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Int, Int64

from attmask.data.label_sets import classes_in, membership
from attmask.data.source import Source
from attmask.data.stores.labels import in_order
from attmask.data.stores.splits import TRAIN
from attmask.errors import UserError
from attmask.finetuning.config import LabelsConfig
from attmask.wording import counted

_SHOWN = 3
_LARGEST_WEIGHT = 100.0
"""Of a rare label in multi-label training, so that one image does not decide a step."""


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of a classifier, and those that each label of a source stands for."""

    names: tuple[str, ...]
    number: Int64[np.ndarray, " labels"]
    """The class of each label of the source; -1 where training has none. For one label an image."""
    table: Float32[np.ndarray, "labels C"] | None = None
    """Which classes each label of the source stands for, if an image may have several."""

    @property
    def multi_label(self) -> bool:
        """Whether an image may have several classes."""
        return self.table is not None

    def __len__(self) -> int:
        return len(self.names)

    def of(self, labels: Int[np.ndarray, " M"]) -> np.ndarray:
        """The class of each image, or for several a row of 0 and 1."""
        return np.asarray(self.number[labels] if self.table is None else self.table[labels])


def number_alike(splits: Mapping[str, Source]) -> dict[str, Source]:
    """The splits with labels of one numbering: that of train, then what only other splits have.

    A data set numbers the labels of each held-out split beyond those of train by themselves.
    """
    train = splits[TRAIN]
    if train.labels is None:
        return dict(splits)
    others = {name for source in splits.values() for name in source.classes}
    classes = (*train.classes, *in_order(sorted(others - set(train.classes))))
    number = {name: index for index, name in enumerate(classes)}
    alike = {}
    for name, source in splits.items():
        alike[name] = source
        if source.labels is not None and name != TRAIN:
            numbers = np.array([number[called] for called in source.classes], dtype=np.int64)
            labels = numbers[np.asarray(source.labels)]
            alike[name] = replace(source, labels=labels, classes=classes)
    return alike


def find_classes(train: Source, held_out: Mapping[str, Source], config: LabelsConfig) -> Classes:
    """The classes of the training images; an error if other images have classes beyond them."""
    if train.labels is None:
        raise UserError(
            f"the images of {train.root} have no labels; give one sub-folder for each class, or a "
            "list with a column label"
        )
    for name, source in held_out.items():
        if source.labels is None:
            raise UserError(
                f"the {name} images of {train.root} have no labels; label them, or take them out"
            )
    texts = max((s.classes for s in (train, *held_out.values())), key=len)  # see number_alike
    found = _several(train, texts) if config.multi_label else _one_each(train, texts)
    for name, source in held_out.items():
        _refuse_unknown(name, source, found)
    return found


def _one_each(train: Source, texts: Sequence[str]) -> Classes:
    assert train.labels is not None
    used = np.unique(train.labels)
    if len(used) < 2:
        raise UserError(
            f"all {counted(len(train), 'image')} of {train.root} have the class "
            f"{texts[int(used[0])]!r}; fine-tuning wants at least two classes"
        )
    number = np.full(len(texts), -1, dtype=np.int64)
    number[used] = np.arange(len(used))
    return Classes(tuple(texts[int(label)] for label in used), number)


def _several(train: Source, texts: Sequence[str]) -> Classes:
    assert train.labels is not None
    used = np.unique(train.labels)
    names = classes_in([texts[int(label)] for label in used])
    if not names:
        raise UserError(f"no image of {train.root} has a label; give a list with a column label")
    number = np.full(len(texts), -1, dtype=np.int64)
    table = np.zeros((len(texts), len(names)), dtype=np.float32)
    for row, text in enumerate(texts):
        with suppress(KeyError):  # a label that only held-out images have
            table[row], number[row] = membership([text], names)[0], 0
    return Classes(names, number, table)


def _refuse_unknown(split: str, source: Source, classes: Classes) -> None:
    assert source.labels is not None
    unknown = [int(label) for label in np.unique(source.labels) if classes.number[label] < 0]
    if unknown:
        shown = ", ".join(source.classes[label] for label in unknown[:_SHOWN])
        more = ", ..." if len(unknown) > _SHOWN else ""
        raise UserError(
            f"the {split} images of {source.root} have {counted(len(unknown), 'label')} that no "
            f"training image has: {shown}{more}; add training images, or take these out"
        )


def guess_loss(
    classes: Classes, train: Source, weights: Float32[np.ndarray, " C"] | None, smoothing: float
) -> float:
    """The loss of a classifier that finds all classes equally likely, over the training images."""
    assert train.labels is not None
    each, weight = classes.of(train.labels), 1.0 if weights is None else weights
    if classes.multi_label:
        wanted = each.mean(0) * (1 - smoothing) + smoothing / 2
        return math.log(2) * float((wanted * weight + 1 - wanted).mean())
    shares = np.bincount(each, minlength=len(classes)) / len(each)
    wanted = shares * (1 - smoothing) + smoothing / len(classes)
    return math.log(len(classes)) * float((wanted * weight).sum())


def rarest(classes: Classes, train: Source) -> Int64[np.ndarray, " M"]:
    """The rarest class of each image; those without a class have a number of their own."""
    assert train.labels is not None
    each = classes.of(train.labels)
    if not classes.multi_label:
        return each
    rarity = each / np.maximum(1, each.sum(0))
    return np.where(each.any(1), rarity.argmax(1), len(classes)).astype(np.int64)


def class_weights(classes: Classes, train: Source) -> Float32[np.ndarray, " C"]:
    """What makes rare classes count as much as frequent ones.

    For one label an image it is images / (classes × images of the class), as in scikit-learn; for
    several it is the number of images without the label for each image that has it.
    """
    assert train.labels is not None
    each = classes.of(train.labels)
    if classes.multi_label:
        having = each.sum(0)
        odds = (len(each) - having) / np.maximum(1, having)
        return np.asarray(np.clip(odds, 1 / _LARGEST_WEIGHT, _LARGEST_WEIGHT), dtype=np.float32)
    counts = np.bincount(each, minlength=len(classes))
    balanced = len(each) / (len(classes) * np.maximum(1, counts))
    return np.asarray(balanced, dtype=np.float32)
