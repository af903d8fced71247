"""A store of pictures in single files, named by their path."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from attmask.data.source import Source
from attmask.data.stores.index import Index, Part


@dataclass(frozen=True, eq=False)
class Files:
    """A store of files below `root`; an absolute name stays where it is."""

    root: Path
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        """The file's path below the root."""
        return self.names[row]

    def read(self, row: int) -> bytes:
        """The bytes of the file."""
        with open(self.root / self.names[row], "rb", opener=_without_waiting) as file:
            return file.read()

    @property
    def shards(self) -> Sequence[int]:
        """None: every picture is a single file."""
        return ()

    def paths(self, rows: Int64[np.ndarray, " m"] | range) -> Iterable[Path]:
        """The file of each picture."""
        return (self.root / self.names[int(row)] for row in rows)


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking: a named pipe with a picture's name is then an empty file."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def files_of(index: Index, part: Part) -> Source:
    """The source of one part that a scan of files found."""
    root = index.base / part.root
    return index.source(part, root, Files(root, part.names))
