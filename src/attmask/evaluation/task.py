"""A task: a protocol on a data set, with a version.

    Task("knn", Knn(), Labelled(), version=1, about="weighted nearest neighbours")

Both are configs, so every setting of a task is in its card and can be overridden by `key=value`.
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
    """The results of a protocol: metrics, the most important first, and notes."""

    metrics: tuple[Metric, ...]
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    """Further results as JSON, for example a curve or numbers per class."""
    files: tuple[Path, ...] = ()
    """Plots and tables that were written."""

    def __post_init__(self) -> None:
        check_unique(self.metrics)

    @property
    def values(self) -> dict[str, float]:
        """The values by the keys of the metrics."""
        return values_by_key(self.metrics)


@runtime_checkable
class Data(Protocol):
    """An opened data set."""

    @property
    def sources(self) -> Mapping[str, Source]:
        """Its images by their role in the protocol, for the card: train, test, ..."""


Opened = TypeVar("Opened", bound=Data, covariant=True)
Measured = TypeVar("Measured", bound=Data, contravariant=True)
Shared = TypeVar("Shared", bound=Data)


@runtime_checkable
class DataSet(Protocol[Opened]):
    """A config that opens a data set on disk."""

    @property
    def layout(self) -> str:
        """The expected files and folders, in words."""

    def open(self, path: Path) -> Opened:
        """Open the data set, or raise a `UserError` that names what is missing."""


@runtime_checkable
class Procedure(Protocol[Measured]):
    """A protocol: a config with a method that evaluates a network."""

    def measure(self, model: FrozenModel, data: Measured, extractor: FeatureExtractor) -> Measures:
        """Evaluate one network; with several processes, each of them calls this."""


@runtime_checkable
class Checking(Protocol[Measured]):
    """A protocol that can check its requirements in advance."""

    def check(self, model: FrozenModel, data: Measured) -> None:
        """Raise `UserError` for anything that would make `measure` fail later.

        It is called for every task and every network before the first task runs, so it must be
        fast: it may read headers, labels and settings, but must not run the network.
        """


@runtime_checkable
class Sizing(Protocol):
    """A protocol whose input size is neither its `image_size` nor the network's own."""

    def shown_size(self, model: FrozenModel) -> int | None:
        """The side of the network's input in pixels; None if it varies."""


@runtime_checkable
class Drawing(Protocol):
    """A protocol that can plot the results of several networks."""

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Write one plot of the cards as a PNG."""


def shown_size(procedure: object, model: FrozenModel) -> int | None:
    """The side of the network's input in pixels under a protocol; None if it varies."""
    if isinstance(procedure, Sizing):
        return procedure.shown_size(model)
    asked = getattr(procedure, "image_size", None)
    return asked if isinstance(asked, int) else model.image_size


@dataclass(frozen=True)
class Task(Generic[Shared]):
    """A named protocol on a data set; the version increases whenever its results change."""

    name: str
    protocol: Procedure[Shared]
    dataset: DataSet[Shared]
    version: int
    about: str
