"""From what classes are called to numbers: names are sorted, integers by their value."""

from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int64

from attmask.data.stores.index import Part
from attmask.errors import UserError

Labelled: TypeAlias = tuple[Int64[np.ndarray, " M"] | None, tuple[str, ...]]
"""The number of each image's class, or None, and what the classes are called."""


class LabelsBuilder:
    """Collects what each image's class is called without holding one text for each image."""

    def __init__(self) -> None:
        self._codes = array("q")
        self._seen: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._codes)

    def add(self, label: str) -> None:
        """The class of one more image."""
        self._codes.append(self._seen.setdefault(label, len(self._seen)))

    def build(self) -> tuple[Int64[np.ndarray, " M"], tuple[str, ...]]:
        """The number of each image's class, and what the classes are called."""
        classes = in_order(list(self._seen))
        number = {name: label for label, name in enumerate(classes)}
        numbers = np.array([number[name] for name in self._seen], dtype=np.int64)
        return np.asarray(numbers[np.frombuffer(self._codes, dtype=np.int64)]), classes


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


def match_classes(val: Part, train: Part, where: str, there: str) -> Part:
    """Number the classes of `val` as `train` does, by name; the texts say where each lies."""
    if val.labels is None or train.labels is None:
        return val
    return replace(
        val,
        labels=renumber(val.labels, val.classes, train.classes, where, there),
        classes=train.classes,
    )


def renumber(
    labels: Int64[np.ndarray, " M"],
    classes: Sequence[str],
    wanted: Sequence[str],
    where: str,
    there: str,
) -> Int64[np.ndarray, " M"]:
    """Labels that index `wanted` instead of `classes`, which must all be among them."""
    missing = sorted(set(classes) - set(wanted))
    if missing:
        named = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UserError(
            f"{where} has {len(missing)} classes that {there} does not have: {named}; "
            f"name the classes alike or remove these"
        )
    number = {name: label for label, name in enumerate(wanted)}
    ours = np.array([number[name] for name in classes], dtype=np.int64)
    return np.asarray(ours[labels])


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
