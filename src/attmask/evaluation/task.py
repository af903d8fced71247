"""A task: a protocol on a data set, in a version.

    Task("knn", Knn(), Labelled(), version=1, about="weighted nearest neighbours")

A protocol measures, a data set opens what lies on disk; both are configs, so that every setting
of a task is in its card and can be changed by `key=value`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from attmask.data.source import Source
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card
from attmask.metric import Metric, check_unique, values_by_key


@dataclass(frozen=True)
class Measures:
    """What a protocol found: its metrics, the headline first, and what must be said."""

    metrics: tuple[Metric, ...]
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    """More than a table can hold, as JSON: a curve, numbers by class."""
    files: tuple[Path, ...] = ()
    """What was drawn."""

    def __post_init__(self) -> None:
        check_unique(self.metrics)

    @property
    def values(self) -> dict[str, float]:
        """The numbers by the keys of their metrics."""
        return values_by_key(self.metrics)


@runtime_checkable
class Data(Protocol):
    """An opened data set."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """Its images by their part in the protocol, for the card: train, test, ..."""


Opened = TypeVar("Opened", bound=Data, covariant=True)
Measured = TypeVar("Measured", bound=Data, contravariant=True)
Shared = TypeVar("Shared", bound=Data)


@runtime_checkable
class DataSet(Protocol[Opened]):
    """A config that says how a data set lies on disk."""

    @property
    def layout(self) -> str:
        """The files and folders it wants, for people."""

    def open(self, path: Path) -> Opened:
        """Find everything, or say which file or folder is missing."""


@runtime_checkable
class Procedure(Protocol[Measured]):
    """A config that says how something is measured."""

    def measure(self, model: FrozenModel, data: Measured, extractor: FeatureExtractor) -> Measures:
        """Measure one network; with several processes, each of them calls it."""


@runtime_checkable
class Checking(Protocol[Measured]):
    """A procedure that can say beforehand what it lacks."""

    def check(self, model: FrozenModel, data: Measured) -> None:
        """Raise `UserError` for anything that `measure` would fail for later.

        It is called for every task and every network before the first is measured, so it must be
        quick: headers, labels and settings, but no images through the network.
        """


@runtime_checkable
class Sizing(Protocol):
    """A procedure whose images are not simply of its `image_size` or of the network's own."""

    def shown_size(self, model: FrozenModel) -> int | None:
        """The side of the images that the network is shown, in pixels; None where it varies."""


@runtime_checkable
class Drawing(Protocol):
    """A procedure that can draw what it found for several networks."""

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Write one picture of its cards as a PNG."""


def shown_size(procedure: object, model: FrozenModel) -> int | None:
    """The side of the images that a procedure shows to a network, in pixels, if it is one."""
    if isinstance(procedure, Sizing):
        return procedure.shown_size(model)
    asked = getattr(procedure, "image_size", None)
    return asked if isinstance(asked, int) else model.image_size


@dataclass(frozen=True)
class Task(Generic[Shared]):
    """A name for a protocol on a data set; the version counts whenever its numbers change."""

    name: str
    protocol: Procedure[Shared]
    dataset: DataSet[Shared]
    version: int
    about: str
