"""What a format is: how it is written, opened by its own library, and used."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor

from attmask.exporting.subject import Subject

Forward = Callable[[Tensor], dict[str, Tensor]]
"""Normalised images become some of the outputs, by name."""


@runtime_checkable
class Format(Protocol):
    """One format of exports; each is a folder."""

    @property
    def library(self) -> str:
        """The library that loads it, by the name that the Hugging Face hub knows."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages whose versions the model card states."""

    def takes_other_sizes(self, subject: Subject) -> bool:
        """Whether images of other sizes have the same features as in attmask."""

    def write(self, subject: Subject, folder: Path) -> None:
        """Write the files of the format; an error says what it cannot hold."""

    def open(self, subject: Subject, folder: Path) -> Forward:
        """Load what was written with the format's own library, without a network."""

    def usage(self, subject: Subject, named: str) -> str:
        """A few lines of Python that load the folder or repository `named`."""
