"""Number classes by their sorted names, integers by their value."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from jaxtyping import Int

from attmask.data.source import Source
from attmask.data.stores.columns import Column, looked_up, pieces
from attmask.data.stores.index import Part
from attmask.data.stores.splits import TRAIN

log = logging.getLogger(__name__)

Labelled: TypeAlias = tuple[Int[np.ndarray, " M"] | None, tuple[str, ...]]
"""The number of each image's class, or None, and what the classes are called."""

Split = TypeVar("Split", Part, Source)

_SHOWN = 5  # names


class LabelsBuilder:
    """Collects the class names of images without one string per image."""

    def __init__(self, scratch: Path | None = None) -> None:
        self._scratch, self._codes = scratch, Column(scratch)
        self._seen: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, label: str) -> None:
        """The class of one more image."""
        self._codes.append(self._seen.setdefault(label, len(self._seen)))

    def build(self) -> tuple[Int[np.ndarray, " M"], tuple[str, ...]]:
        """The number of each image's class, and what the classes are called."""
        return number_classes(self._codes.build(), list(self._seen), self._scratch)


def number_classes(
    codes: Int[np.ndarray, " M"], names: Sequence[str], scratch: Path | None = None
) -> tuple[Int[np.ndarray, " M"], tuple[str, ...]]:
    """Number the classes that have an image in the order of their names; `codes` index `names`,
    which differ."""
    counts = np.zeros(len(names), dtype=np.int64)
    for piece in pieces(len(codes)):
        counts += np.bincount(codes[piece], minlength=len(names))
    used = np.flatnonzero(counts).tolist()
    classes = in_order([names[code] for code in used])
    number = {name: label for label, name in enumerate(classes)}
    numbers = np.zeros(len(names), dtype=np.int64)
    numbers[used] = [number[names[code]] for code in used]
    return looked_up(numbers, codes, scratch), classes


def label_texts(values: Sequence[Any], names: Sequence[str] | None) -> Labelled:
    """Labels of a table: numbers of known names, or any values; none where one is missing."""
    if names is not None:
        if any(value is None or value < 0 for value in values):
            return None, ()  # Hugging Face marks what has no label with -1
        return np.array(values, dtype=np.int64), tuple(names)
    builder = LabelsBuilder()
    for value in values:
        if value is None:
            return None, ()
        builder.add(str(value))
    return builder.build()


def in_order(classes: Sequence[str]) -> tuple[str, ...]:
    """Sorted by value where all are integers, by name where not."""
    if all(_is_integer(name) for name in classes):
        return tuple(sorted(classes, key=int))
    return tuple(sorted(classes))


def match_classes(splits: Mapping[str, Split], where: str | Path) -> dict[str, Split]:
    """Number the classes of every split as train does, by name.

    Classes that train lacks come after its own, so that what train is does not depend on them.
    """
    train = splits[TRAIN]
    matched = dict(splits)
    for name, held_out in splits.items():
        if name == TRAIN or train.labels is None or held_out.labels is None:
            continue
        classes = _joined(train.classes, held_out.classes)
        number = {called: label for label, called in enumerate(classes)}
        numbers = np.array([number[called] for called in held_out.classes], dtype=np.int64)
        labels = looked_up(numbers, held_out.labels)
        matched[name] = replace(held_out, labels=labels, classes=classes)
        if len(classes) > len(train.classes):
            log.warning("%s: %s", where, _unknown_classes(name, classes[len(train.classes) :]))
    return matched


def _joined(train: Sequence[str], held_out: Sequence[str]) -> tuple[str, ...]:
    """The classes of train, and after them those that only the held-out images have."""
    return (*train, *in_order(sorted(set(held_out) - set(train))))


def _unknown_classes(split: str, classes: Sequence[str]) -> str:
    shown = ", ".join(classes[:_SHOWN]) + (", ..." if len(classes) > _SHOWN else "")
    if len(classes) == 1:
        return f"{split} has a class that train does not have: {shown}"
    return f"{split} has {len(classes)} classes that train does not have: {shown}"


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
