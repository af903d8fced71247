"""Any number of classes per image: labels that join their names, such as `cat|dog`."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool

from attmask.data.stores.labels import in_order

SEPARATOR = "|"
"""What stands between the classes of one image; a separator alone is an image of no class."""


def classes_in(labels: Sequence[str]) -> tuple[str, ...]:
    """The single classes that occur in these labels, numbered as classes always are."""
    return in_order(sorted({name for label in labels for name in _names(label)}))


def membership(labels: Sequence[str], classes: Sequence[str]) -> Bool[np.ndarray, "n C"]:
    """Which of `classes` each label names; KeyError for a class that is not among them."""
    number = {name: index for index, name in enumerate(classes)}
    table = np.zeros((len(labels), len(classes)), dtype=np.bool_)
    for row, label in enumerate(labels):
        table[row, [number[name] for name in _names(label)]] = True
    return table


def joined(classes: Sequence[str]) -> str:
    """The label of an image of these classes."""
    return SEPARATOR.join(classes)


def _names(label: str) -> list[str]:
    return [name for part in label.split(SEPARATOR) if (name := part.strip())]
